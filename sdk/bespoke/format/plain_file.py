# SPDX-License-Identifier: Apache-2.0
"""Opening a file under a name from outside: a plain file or an immediate error.

Opening a pipe waits for its other end, perhaps forever, and reading a device may never end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["open_plain", "read_plain"]

_MOST_BYTES = 2**28  # of a document read at once; a tokenizer of 250 thousand tokens has 35 MB


def open_plain(path: Path | str) -> BinaryIO:
    """Open a file for reading. Raises OSError if there is none, or if it is a pipe, a device, a socket or a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "something that is no plain file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_plain(path: Path | str, most: int = _MOST_BYTES) -> bytes:
    """The bytes of a plain file. Raises OSError also if there are more than `most`."""
    with open_plain(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"more than {most} bytes", str(path))
    return data
