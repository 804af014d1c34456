# SPDX-License-Identifier: Apache-2.0
"""Opening a file that somebody else names: a plain file or an error, at once.

Opening a pipe waits for its other end, for ever where there is none, and a device may never end.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["open_plain", "read_plain"]

_MOST_BYTES = 2**28  # of a document that is read as one; a tokenizer of 250 thousand tokens has 35 MB


def open_plain(path: Path | str) -> BinaryIO:
    """The file, open for reading. OSError where there is none, or where it is a pipe, a device, a socket or a folder."""
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
    """Its bytes. OSError also where it has more than so many."""
    with open_plain(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"more than {most} bytes", str(path))
    return data
