# SPDX-License-Identifier: Apache-2.0
"""Writer of files at a path that the user chose. The path is checked before the work, the file is written after it.

A named pipe is refused: the writer would wait until somebody reads it, and a test for a reader would end what that reader
reads. Standard output and a shell's /dev/fd may be pipes. They are written like files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bespoke import arguments
from bespoke.errors import ConfigError

__all__ = ["check_place", "write", "writing"]


def check_place(subject: str, path: Path) -> None:
    """Raise ConfigError unless the file's folder exists and the path is free or a file."""
    arguments.path(subject, path, "a path")
    folder = path.absolute().parent
    if not folder.is_dir():
        got = "a folder that is not there"
        raise ConfigError(subject, got=got, expected="an existing folder", next_step="Make the folder first")
    if path.is_dir():
        raise ConfigError(subject, got="a folder", expected="a file that can be written", next_step="Name a file")
    if path.is_fifo() and folder not in map(Path, ("/dev", "/dev/fd", "/proc/self/fd")):
        raise ConfigError(subject, got="a named pipe", expected="a file that can be written", next_step="Name a file")


def write(subject: str, path: Path, data: bytes) -> None:
    """Write a file after `check_place`."""
    with writing(subject):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        os.set_blocking(descriptor, True)  # only opening must not wait
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)


@contextmanager
def writing(subject: str) -> Iterator[None]:
    """Turn an OSError of the body into a ConfigError."""
    try:
        yield
    except OSError as error:
        got = error.strerror or "an error"
        raise ConfigError(subject, got=got, expected="a file that can be written", next_step="Check the path") from None
