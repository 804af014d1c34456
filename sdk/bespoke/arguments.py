# SPDX-License-Identifier: Apache-2.0
"""Checks for the arguments of public calls. A wrong type raises a BespokeError, not a TypeError from inside.

Each function returns the value in the type that the SDK uses. `error` is the class that the call raises.
"""

from __future__ import annotations

import math
import operator
import os
import re
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, get_args

from bespoke.errors import BespokeError, ConfigError, DataError, shown
from bespoke.remedies import setting

__all__ = [
    "TRAIN_ON",
    "TrainOn",
    "folder",
    "function",
    "number",
    "one_of",
    "path",
    "token_ids",
    "unclear_steps",
    "whole_number",
]

TrainOn = Literal["assistant", "user", "all"]
"""Whose messages are learned from."""
TRAIN_ON: tuple[TrainOn, ...] = get_args(TrainOn)

Raised = type[BespokeError]
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MAX_PATH_BYTES, _MAX_NAME_BYTES = 4095, 255  # limits of Linux


def whole_number(name: str, value: Any, least: int, most: int | None = None, *, error: Raised = ConfigError) -> int:
    """Returns an int from `least` to `most`. NumPy's integers are accepted; True and False are not."""
    expected = f"a whole number, at least {least}" if most is None else f"a whole number from {least} to {most}"
    try:
        integer = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        integer = None

    if integer is None or integer < least or (most is not None and integer > most):
        raise _wrong(error, name, value, expected)
    return integer


def number(
    name: str, value: Any, expected: str, fits: Callable[[float], bool], *, error: Raised = ConfigError
) -> float:
    """Returns a finite number that `fits` accepts, as a float. `expected` says in words what fits."""
    if not isinstance(value, Real) or isinstance(value, bool) or not _is_finite(value) or not fits(float(value)):
        raise _wrong(error, name, value, expected)
    return float(value)


def _is_finite(value: Real) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an int that no float can hold
        return False


def unclear_steps(value: Any) -> ConfigError:
    """The error for `steps` of a training, which does not say whether the run or the call is meant."""
    return ConfigError(
        setting("train.steps"),
        got=shown(value),
        expected=setting("run_steps")
        + ", the length of a new run, or "
        + setting("most_steps")
        + ", the most steps of this call",
        next_step="Give one of the two",
    )


def one_of(name: str, value: Any, choices: Sequence[str]) -> str:
    """Returns the value if it is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise _wrong(ConfigError, name, value, " or ".join(map(repr, choices)))
    return value


def token_ids(name: str, value: Any, vocabulary: int) -> list[int]:
    """Returns token ids below `vocabulary`, at least one, as Python ints. Raises DataError for anything else."""
    import numpy as np  # here: a command that only shows its help does not need it

    listed = isinstance(value, Sequence | np.ndarray) and not isinstance(value, str | bytes)
    wrong = [token for token in value if not _is_token(token, vocabulary)] if listed else [value]
    if wrong or not len(value):
        raise DataError(
            name,
            got=repr(wrong[0])[:100] if wrong else "no tokens",
            expected=f"a list of token ids from 0 to {vocabulary - 1}",
            next_step="Tokenize with the tokenizer of the bundle's own model",
        )
    return [int(token) for token in value]


def _is_token(value: Any, vocabulary: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < vocabulary


def folder(name: str, value: Any) -> Path:
    """Returns the path of a folder, which need not exist."""
    return path(name, value, "the path of a folder, as text or Path")


def path(name: str, value: Any, expected: str) -> Path:
    """Returns a path from a text or a Path that is not empty.

    The absolute path must be UTF-8. The device core accepts no other, nor do JSON and a bundle's manifest, which hold paths.
    """
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str) or not os.fspath(value):
        raise _wrong(ConfigError, name, value, expected)

    result = Path(value)
    if is_url(value):
        raise ConfigError(
            setting(name),
            got=f"a URL, {shown(os.fspath(value))}",
            expected=expected,
            next_step="Give the path in it, without the scheme",
        )
    if "\0" in str(result):
        raise _wrong(ConfigError, name, value, "a path without NUL")
    _check_utf8(name, result)

    if len(str(result).encode()) > _MAX_PATH_BYTES or any(
        len(part.encode()) > _MAX_NAME_BYTES for part in result.parts
    ):
        raise _wrong(ConfigError, name, value, f"a path of at most {_MAX_PATH_BYTES} bytes, {_MAX_NAME_BYTES} a name")
    return result


def is_url(value: str | os.PathLike[str]) -> bool:
    """Whether the value is a URL, which would otherwise name a folder here. In a Path, `file://` has become `file:/`."""
    return bool(_URL.match(os.fspath(value))) or (
        isinstance(value, os.PathLike) and Path(value).parts[:1] == ("file:",)
    )


def _check_utf8(name: str, path: Path) -> None:
    """Checks the absolute path. For a relative path that includes the working folder of this process."""
    whole = path
    try:
        str(path).encode()
        whole = path.absolute()
        str(whole).encode()
    except UnicodeEncodeError:
        raise ConfigError(
            setting(name),
            got=shown(str(whole)),
            expected="a path of UTF-8 text",
            next_step="Rename what has other bytes in its name, or reach it by a link with another name",
        ) from None
    except OSError as problem:
        raise ConfigError(
            setting(name),
            got=f"{shown(str(path))}, in a working folder that cannot be named: {problem.strerror}",
            expected="a path",
            next_step="Give a path from the root on, or change to a folder that is there",
        ) from None


def function(name: str, value: Any, expected: str) -> None:
    """Checks that an optional argument is callable or None."""
    if value is not None and not callable(value):
        raise _wrong(ConfigError, name, value, expected)


def _wrong(error: Raised, name: str, value: Any, expected: str) -> BespokeError:
    return error(setting(name), got=shown(value), expected=expected, next_step="Change " + setting(name))
