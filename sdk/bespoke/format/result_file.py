# SPDX-License-Identifier: Apache-2.0
"""Files that are written where a user asked for them: the place is checked before the work, the file written after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bespoke.errors import ConfigError

__all__ = ["check_place", "writing"]


def check_place(subject: str, path: Path) -> None:
    """ConfigError unless the file's folder is there and nothing but a file stands in its place."""
    folder = path.absolute().parent
    if not folder.is_dir():
        got = "a folder that is not there"
        raise ConfigError(subject, got=got, expected="an existing folder", next_step="Make the folder first")
    if path.is_dir():
        raise ConfigError(subject, got="a folder", expected="a file that can be written", next_step="Name a file")


@contextmanager
def writing(subject: str) -> Iterator[None]:
    """What the system refuses becomes a ConfigError."""
    try:
        yield
    except OSError as error:
        got = error.strerror or "an error"
        raise ConfigError(subject, got=got, expected="a file that can be written", next_step="Check the path") from None
