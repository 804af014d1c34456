# SPDX-License-Identifier: Apache-2.0
"""Every error that leaves the SDK, each saying what it is about, what was got, what was expected and what to do next.

Device code has the same names and the same four parts, so that a message in a log is understood without knowing
which runtime wrote it. `exit_code` is what the command line ends with.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Number
from typing import ClassVar

from bespoke.remedies import Words

MAX_PART_BYTES = 1000  # of each of an error's four parts, in UTF-8; kMaxPartBytes of the device core
_MAX_LISTED_BYTES = 4 * MAX_PART_BYTES
_SHOWN_CHARACTERS = 200
_OWN_FRAMES = ("bespoke", "contextlib")


def printable(text: str, most: int = MAX_PART_BYTES) -> str:
    """`text` as it may stand on a terminal and in a log: what is not printable is escaped as in Python, and of a long text the
    middle is left out. At most `most` bytes of UTF-8.

    Much of what errors name comes from outside: file names, ids, columns, keys of JSON. It may hold controls that move the cursor
    or turn the direction of writing, half of a surrogate pair, which no stream takes, or megabytes.
    """
    if len(text) <= most and text.isprintable() and len(text.encode()) <= most:
        return text
    if len(text) <= most:
        whole = text.with_texts(_printable) if isinstance(text, Words) else _printable(text)
        if not whole.isprintable():  # a reference to something that cannot be shown is no reference
            whole = _printable(text)
        if len(whole.encode()) <= most:
            return whole
    room = (most - len(_left_out(len(text)))) // 2
    head, tail = _as_many_as_fit(text[:room], room), _as_many_as_fit(text[: -room - 1 : -1], room)
    return "".join((*head, _left_out(len(text) - len(head) - len(tail)), *reversed(tail)))


def _printable(text: str) -> str:
    return "".join(map(_escaped, text))


def _left_out(count: int) -> str:
    return f" ... {count} characters left out ... "


def _as_many_as_fit(text: str, room: int) -> list[str]:
    taken: list[str] = []
    for character in text:
        shown_as = _escaped(character)
        room -= len(shown_as.encode())
        if room < 0:
            break
        taken.append(shown_as)
    return taken


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode("ascii")


class BespokeError(Exception):
    """Base of all errors of the SDK.

    `subject` is the object at fault (a file, a field, a value of the plan), `got` what was found there, `expected`
    what should have been there, `next_step` an instruction to the reader. All four are text without a final dot, printable and
    bounded whatever went into them. One that names verbs or settings is `Words` of bespoke.remedies, for other languages.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, subject: str, *, got: str, expected: str, next_step: str) -> None:
        self.subject, self.got, self.expected, self.next_step = map(printable, (subject, got, expected, next_step))
        super().__init__(self.subject, self.got, self.expected, self.next_step)

    def __str__(self) -> str:
        end = "" if self.next_step.endswith("?") else "."
        return f"{self.subject}: got {self.got}; expected {self.expected}. {self.next_step}{end}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.subject, self.got, self.expected, self.next_step))


def _rebuild(kind: type[BespokeError], subject: str, got: str, expected: str, next_step: str) -> BespokeError:
    return kind(subject, got=got, expected=expected, next_step=next_step)


def shown(value: object) -> str:
    """A value that was given, as an error shows it: as it would be written in Python, and no longer than a line or two."""
    if value == "" and isinstance(value, str):
        return "an empty text"
    try:
        text = repr(value[:_SHOWN_CHARACTERS] if isinstance(value, str | bytes) else value)
    except Exception:  # an int of more digits than Python prints, or an object of the caller's whose repr fails
        text = f"something of Python's type '{type(value).__name__}' that cannot be printed"
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def kind_of(value: object) -> str:
    """What a value of an example is, in JSON's words: examples come from files as often as from Python."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true or false"
    kinds = ((str, "text"), (bytes, "bytes"), (Number, "a number"), (Mapping, "an object"), (Sequence, "a list"))
    return next(
        (name for kind, name in kinds if isinstance(value, kind)),
        f"something of Python's type '{type(value).__name__}'",
    )


class ConfigError(BespokeError):
    """Settings that cannot work. Several problems are reported together by `from_problems`."""

    exit_code = 2
    problems: tuple[ConfigError, ...] = ()

    @classmethod
    def from_problems(cls, problems: Sequence[ConfigError]) -> ConfigError:
        """One error for several problems, so that all can be fixed at once. `got` has a line for each that fits."""
        if len(problems) == 1:
            return problems[0]
        lines: list[str] = []
        room = _MAX_LISTED_BYTES
        for problem in problems:
            line = (
                "\n  ".join(map(printable, str(problem).split("\n"))) if problem.problems else printable(str(problem))
            )
            room -= len(line.encode())
            if room < 0:
                lines.append(f"and {len(problems) - len(lines)} more")
                break
            lines.append(line)
        whole = cls(
            f"{len(problems)} settings ({', '.join(p.subject for p in problems)})",
            got="several problems",
            expected="settings without these problems",
            next_step="Fix them and run again",
        )
        whole.got = "\n  " + "\n  ".join(lines) + "\n"  # the only part with lines of its own
        whole.problems = tuple(problems)
        whole.args = (whole.subject, whole.got, whole.expected, whole.next_step)
        return whole

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self).from_problems, (self.problems,)) if self.problems else super().__reduce__()


# What is not installed with bespoke-sdk alone, and the extra that brings it. Torch alone is rarely enough: `build` brings it too.
EXTRAS = {"torch": "build", "transformers": "build", "jinja2": "build", "gguf": "gguf"}


class MissingDependency(BespokeError):
    """An optional package is not installed, or a library that a program needs is not there."""

    exit_code = 3

    @classmethod
    def of(cls, user: str, package: str, extra: str) -> MissingDependency:
        return cls(
            user,
            got=f"no package '{package}'",
            expected=f"'{package}' to be installed",
            next_step=f"pip install 'bespoke-sdk[{extra}]'",
        )

    @classmethod
    @contextmanager
    def unless_there(cls, user: str, package: str, extra: str) -> Iterator[None]:
        """Around an import of `package`, for `user`."""
        try:
            yield
        except ModuleNotFoundError as error:
            if error.name != package:
                raise
            raise cls.of(user, package, extra) from None


class ModelError(BespokeError):
    """A model folder that cannot be read or converted: a missing tensor, a NaN, a wrong shape."""

    exit_code = 4


class UnsupportedModel(ModelError):
    """A model whose architecture, RoPE scaling or activation the SDK does not know."""


class BuildWarning(UserWarning):
    """Something in a model's folder that a build passes over or takes otherwise, where one may have expected it as it stands."""

    @classmethod
    def warn(cls, message: str) -> None:
        """Issues it for the line outside of this package that asked for the build."""
        level, frame = 1, sys._getframe()
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OWN_FRAMES:
            frame, level = frame.f_back, level + 1  # type: ignore[assignment]
        warnings.warn(message, cls, stacklevel=level)


class DataError(BespokeError):
    """Training data or an example that cannot be used. `subject` carries file and row where there are any."""

    exit_code = 5


class TemplateError(DataError):
    """A chat template that is not of the shape that turns.json can hold."""


class GraphError(BespokeError):
    """A function that cannot be traced into a graph, or a graph that bespoke did not write."""

    exit_code = 6


class PlanError(BespokeError):
    """A plan that breaks a rule: used before defined, shapes that disagree, stored twice."""

    exit_code = 6


class PlanDoesNotFit(PlanError):
    """No plan of this method fits the memory budget."""


class Unsupported(BespokeError):
    """A target cannot compile a graph; `subject` names graph and operator."""

    exit_code = 6


class PluginError(BespokeError):
    """A plugin that is missing, broken or not what it claims to be."""

    exit_code = 7


class BundleError(BespokeError):
    """A bundle that is damaged, hostile or of another version."""

    exit_code = 8


class BundleVersionError(BundleError):
    """A bundle written in a format this reader does not take."""


class SignatureError(BundleError):
    """A bundle whose signature is absent, of another key or wrong."""


class GoldenMismatch(BundleError):
    """The runtime does not reproduce the bundle's golden vectors."""


class StateError(BespokeError):
    """A state folder that is damaged, of another version or of another base model."""

    exit_code = 9


class StateLocked(StateError):
    """Another trainer holds the state."""


class DiskFull(StateError):
    """The disk has no room for a commit, the scratch file or packed weights. What was committed stays."""


class Unavailable(StateError):
    """The state or the device cannot be used now: another process keeps it busy, or it lacks what a program needs.

    Nothing is damaged: try again later, or when that is fixed.
    """

    exit_code = 16


class BudgetExceeded(BespokeError):
    """Going on would take more memory than the limit. Raised before the load or call that would."""

    exit_code = 10


class Busy(BespokeError):
    """Another call computes with this model; one at a time does."""

    exit_code = 14


class Cancelled(BespokeError):
    """The call was cancelled, or reached its deadline, before there was anything to report."""

    exit_code = 15


class AdapterError(BespokeError):
    """An adapter that does not fit the model: other shapes, other rank, other base."""

    exit_code = 12


class GenerationError(BespokeError):
    """A prompt or a sampling setting that cannot be answered."""

    exit_code = 13
