# SPDX-License-Identifier: Apache-2.0
"""The SDK's errors. Each says what it is about, what was got, what was expected and what to do next.

The device core uses the same names and the same four parts, so a message in a log reads the same whichever of them wrote it.
`exit_code` is the exit code of the command line.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Number
from typing import ClassVar

from bespoke.remedies import Words

MAX_PART_BYTES = 1000  # limit of each of an error's four parts, in UTF-8; kMaxPartBytes of the device core
_MAX_LISTED_BYTES = 4 * MAX_PART_BYTES
_SHOWN_CHARACTERS = 200
_OWN_FRAMES = ("bespoke", "contextlib")


def printable(text: str, most: int = MAX_PART_BYTES) -> str:
    """Returns a text that is safe on a terminal and in a log, in at most `most` bytes of UTF-8.

    Characters that are not printable are escaped as in Python, and a long text loses its middle. Errors name much that comes from
    outside: file names, ids, columns, keys of JSON. It may hold control characters that move the cursor or reverse the direction of
    writing, half of a surrogate pair, which no stream accepts, or megabytes.
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

    Each part is printable text of bounded length without a final dot. A part that names verbs or settings is `Words` of
    bespoke.remedies, for other languages.

    Args:
        subject: The object at fault: a file, a field, a value of the plan.
        got: What was there.
        expected: What should have been there.
        next_step: An instruction to the reader.
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
    """Returns a value as an error shows it: as Python writes it, in at most a line or two."""
    if value == "" and isinstance(value, str):
        return "an empty text"
    try:
        text = repr(value[:_SHOWN_CHARACTERS] if isinstance(value, str | bytes) else value)
    except Exception:  # an int of more digits than Python prints, or an object whose repr fails
        text = f"something of Python's type '{type(value).__name__}' that cannot be printed"
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."


def kind_of(value: object) -> str:
    """Returns the type of an example's value in JSON's words, because examples often come from files."""
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
        """Returns one error for several problems, so that all can be fixed at once. `got` has a line for each that fits."""
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


# Optional package -> the extra that installs it. Torch alone is rarely enough, so it is `build`, which installs torch too.
EXTRAS = {"torch": "build", "transformers": "build", "jinja2": "build", "gguf": "gguf"}


class MissingDependency(BespokeError):
    """An optional package is not installed, or a library that a program needs is not there."""

    exit_code = 3

    @classmethod
    def of(cls, user: str, package: str, extra: str) -> MissingDependency:
        """Returns the error of `user`, which needs a package of this extra."""
        return cls(
            user,
            got=f"no package '{package}'",
            expected=f"'{package}' to be installed",
            next_step=f"pip install 'bespoke-sdk[{extra}]'",
        )

    @classmethod
    @contextmanager
    def unless_there(cls, user: str, package: str, extra: str) -> Iterator[None]:
        """A context around an import of `package`. Raises the error of `user` where it is not installed."""
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
    """Something in a model's folder that a build ignores or changes, although the user may expect it unchanged."""

    @classmethod
    def warn(cls, message: str) -> None:
        """Issues the warning for the line outside of this package that called the build."""
        level, frame = 1, sys._getframe()
        while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OWN_FRAMES:
            frame, level = frame.f_back, level + 1  # type: ignore[assignment]
        warnings.warn(message, cls, stacklevel=level)


class DataError(BespokeError):
    """Training data or an example that cannot be used. `subject` names file and row where there are any."""

    exit_code = 5


class TemplateError(DataError):
    """A chat template whose form turns.json cannot hold."""


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
    """A plugin that is missing, broken or breaks its contract."""

    exit_code = 7


class BundleError(BespokeError):
    """A bundle that is damaged, hostile or of another version."""

    exit_code = 8


class BundleVersionError(BundleError):
    """A bundle in a format that this reader does not know."""


class SignatureError(BundleError):
    """A bundle whose signature is missing, wrong or by another key."""


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
    """The state, bundle or device cannot be used now: it is busy, its files are closed, or it lacks what a program needs.

    Another process keeps a state busy. The system keeps files closed, as a phone does until it is unlocked. Nothing is
    damaged: try again later, or when that is fixed.
    """

    exit_code = 16


class BudgetExceeded(BespokeError):
    """The next load or call would take more memory than the limit. Raised before it."""

    exit_code = 10


class ServerError(BespokeError):
    """A server of federated learning cannot be reached, or refuses what was sent. Nothing is lost: ask again later.

    retry_seconds: the wait that the server asks for; 0 where it says nothing
    status: of HTTP; None where no answer came
    """

    exit_code = 17
    retry_seconds: float = 0.0
    status: int | None = None


class Busy(BespokeError):
    """Another call computes with this model. Only one can at a time."""

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
