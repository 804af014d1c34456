# SPDX-License-Identifier: Apache-2.0
"""Verbs and settings in an error's text, kept as data so that each language uses its own names.

    next_step="Continue it without them, or " + do("abandon_run") + " and train again"

reads "call abandon_run()" in Python and "run bespoke abandon" on the command line. `Words` is a str with Python's words that
keeps its pieces. `rendered` replaces only references. It never parses a plain text, so user data in it is safe. The device core has
the same pieces (bindings/native/src/remedies.h) and passes them as JSON (`from_json`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from bespoke.verbs import VERB_OF

__all__ = [
    "Call",
    "Language",
    "Like",
    "SettingName",
    "VerbName",
    "Words",
    "do",
    "from_json",
    "rendered",
    "setting",
    "verb",
]

# table -> the class whose arguments are its fields
_TABLES = {"lora": "Lora", "training": "Training", "budget": "Budget"}
_NOT_GIVEN = ...  # a value may be None


class Like(NamedTuple):
    """A placeholder for a value of the reader, as Python writes it and as the command line does."""

    python: str
    command: str

    def __repr__(self) -> str:
        return self.python


@dataclass(frozen=True)
class Call:
    """A call of a verb. `arguments` are the names of arguments in Python."""

    verb: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class VerbName:
    """The name of a verb, without a call."""

    verb: str


@dataclass(frozen=True)
class SettingName:
    """A setting, alone or with a value or a key. It is a field of a table (`training.steps`) or an argument (`memory_mb`)."""

    name: str
    value: Any = _NOT_GIVEN
    key: str | None = None

    @property
    def has_value(self) -> bool:
        return self.value is not _NOT_GIVEN


Reference = Call | VerbName | SettingName


class Language(Protocol):
    """The names of verbs and settings in one language."""

    def call(self, call: Call) -> str: ...

    def verb(self, name: str) -> str: ...

    def setting(self, setting: SettingName) -> str: ...


class Words(str):
    """A text in Python's words that keeps its pieces. Adding keeps them too; every other method returns a plain str."""

    pieces: tuple[str | Reference, ...]

    def __new__(cls, *pieces: str | Reference) -> Words:
        words = super().__new__(cls, _joined(pieces, _PYTHON))
        words.pieces = pieces
        return words

    def __add__(self, other: str) -> Words:
        return Words(*self.pieces, *_pieces(other))

    def __radd__(self, other: str) -> Words:
        return Words(*_pieces(other), *self.pieces)

    def with_texts(self, change: Callable[[str], str]) -> Words:
        """Returns the same references, with each text between them changed."""
        return Words(*(change(piece) if isinstance(piece, str) else piece for piece in self.pieces))


def do(verb: str, *arguments: str) -> Words:
    """A call of a verb of bespoke.verbs: "call forget(id)", or at the start of a text "Call forget(id)"."""
    return Words(Call(VERB_OF[verb].key, arguments))


def verb(name: str) -> Words:
    """The name of a verb of bespoke.verbs alone: "PersonalModel.open"."""
    return Words(VerbName(VERB_OF[name].key))


def setting(name: str, value: Any = _NOT_GIVEN, *, key: str | None = None) -> Words:
    """A setting: "training.steps", "memory_mb=64", "Budget(memory_mb=64)", with a key "fields['prompt']"."""
    return Words(SettingName(name, value, key))


def rendered(text: str, language: Language) -> str:
    """Returns a text in the words of another language."""
    return _joined(_pieces(text), language)


def from_json(part: object) -> str:
    """Returns a part of an error of the core, which is a text or a list of texts and references."""
    if not isinstance(part, list):
        return str(part)
    return Words(*(_piece(piece) for piece in part))


def _piece(piece: object) -> str | Reference:
    """The reference that a JSON value stands for. A verb that this version does not know becomes a text."""
    if isinstance(piece, Mapping):
        name = str(piece.get("do", piece.get("setting", "")))
        if "setting" in piece:
            return SettingName(name, piece["value"]) if "value" in piece else SettingName(name)
        if name in VERB_OF:
            return Call(name, tuple(map(str, piece.get("arguments", ()))))
        return name
    return str(piece)


def _pieces(text: str) -> tuple[str | Reference, ...]:
    return text.pieces if isinstance(text, Words) else (str(text),)


def _joined(pieces: tuple[str | Reference, ...], language: Language) -> str:
    texts: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            text = str(piece)
        elif isinstance(piece, Call):
            text = language.call(piece)
            text = text if texts else text[:1].upper() + text[1:]
        else:
            text = language.verb(piece.verb) if isinstance(piece, VerbName) else language.setting(piece)
        texts.append(text)
    return "".join(texts)


class Python:
    """The words of Python."""

    def call(self, call: Call) -> str:
        return f"call {VERB_OF[call.verb].short_python}({', '.join(call.arguments)})"

    def verb(self, name: str) -> str:
        return VERB_OF[name].full_python

    def setting(self, setting: SettingName) -> str:
        if not setting.has_value:
            return setting.name if setting.key is None else f"{setting.name}[{setting.key!r}]"
        table, _, field = setting.name.rpartition(".")
        given = f"{field}={setting.value!r}"
        return f"{_TABLES[table]}({given})" if table in _TABLES else given


_PYTHON = Python()
