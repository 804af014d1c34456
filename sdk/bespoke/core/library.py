# SPDX-License-Identifier: Apache-2.0
"""libbespoke_core in this process: the structs and functions of bespoke.h, errors as the SDK's, texts in and JSON out.

A call gives up Python's lock while it runs, so other threads go on. Tests hold the tables here against the header.
"""

from __future__ import annotations

import ctypes as c
import json
import threading
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from bespoke import errors
from bespoke.core.finding import find
from bespoke.errors import BespokeError, MissingDependency

__all__ = ["FUNCTIONS", "STRUCTS", "Library", "error_of", "load", "made", "record", "text"]

Record = TypeVar("Record")
PARTS = ("subject", "got", "expected", "next_step")


class Text(c.Structure):
    _fields_ = (("data", c.c_char_p), ("size", c.c_size_t))


class Error(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("status", c.c_int32),
        ("kind", c.c_char_p),
        *((part, c.c_char_p) for part in PARTS),
    )


class Bundle(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("path", Text),
        ("offset", c.c_uint64),
        ("size", c.c_uint64),
        ("descriptor", c.c_int32),
    )


class Options(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("memory_mb", c.c_double),
        ("pin_sha256", Text),
        ("public_key", c.c_char_p),
        ("engine", c.c_void_p),
        ("threads", c.c_int32),
        ("require_authenticated", c.c_int32),
        ("cache", Text),
        ("limit_is_added", c.c_int32),
    )


class Training(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("method", Text),
        ("steps", c.c_int64),
        ("seed", c.c_int64),
        ("has_seed", c.c_int32),
        ("settings", Text),
        ("new_run", c.c_int32),
    )


class Example(c.Structure):
    _fields_ = (("struct_size", c.c_size_t), ("json", Text), ("id", Text), ("use", Text))


class Progress(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("phase", c.c_int32),
        ("step", c.c_int64),
        ("steps", c.c_int64),
        ("loss", c.c_double),
        ("footprint_bytes", c.c_int64),
    )


OnProgress = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.POINTER(Progress))


class Call(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("cancel", c.c_void_p),
        ("deadline_seconds", c.c_double),
        ("context", c.c_void_p),
        ("progress", OnProgress),
    )


class Generation(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("max_tokens", c.c_int64),
        ("temperature", c.c_double),
        ("top_p", c.c_double),
        ("top_k", c.c_int64),
        ("seed", c.c_uint64),
        ("stop_texts", Text),
    )


# Name in bespoke.h -> the struct here. The table of an engine stands with the engine that fills it.
STRUCTS: dict[str, type[c.Structure]] = {
    "bespoke_text": Text,
    "bespoke_error": Error,
    "bespoke_bundle": Bundle,
    "bespoke_options": Options,
    "bespoke_example": Example,
    "bespoke_training": Training,
    "bespoke_progress": Progress,
    "bespoke_call": Call,
    "bespoke_generation": Generation,
}

_MODEL, _SESSION, _ERROR = c.c_void_p, c.c_void_p, c.POINTER(c.POINTER(Error))
_OUT = c.POINTER(c.c_void_p)  # a text, to be freed
_STATUS = c.c_int32
# Name in bespoke.h -> what it returns, what it takes.
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "bespoke_error_free": (None, (c.POINTER(Error),)),
    "bespoke_free": (None, (c.c_void_p,)),
    "bespoke_open": (_STATUS, (c.POINTER(Bundle), Text, c.POINTER(Options), c.POINTER(_MODEL), _ERROR)),
    "bespoke_close": (None, (_MODEL,)),
    "bespoke_install": (_STATUS, (c.POINTER(Text), c.c_size_t, Text, c.POINTER(Options), _ERROR)),
    "bespoke_authenticated": (c.c_char_p, (_MODEL,)),
    "bespoke_set_limit": (_STATUS, (_MODEL, c.c_double, _ERROR)),
    "bespoke_set_pace": (_STATUS, (_MODEL, c.c_double, _ERROR)),
    "bespoke_add_example": (_STATUS, (_MODEL, c.POINTER(Example), _OUT, _ERROR)),
    "bespoke_list_examples": (_STATUS, (_MODEL, _OUT, _ERROR)),
    "bespoke_count_examples": (_STATUS, (_MODEL, c.POINTER(c.c_int64), _ERROR)),
    "bespoke_forget_example": (_STATUS, (_MODEL, Text, _OUT, _ERROR)),
    "bespoke_current_run": (_STATUS, (_MODEL, _OUT, _ERROR)),
    "bespoke_planned_training": (_STATUS, (_MODEL, _OUT, _ERROR)),
    "bespoke_check_training": (_STATUS, (_MODEL, c.POINTER(Training), _ERROR)),
    "bespoke_abandon_run": (_STATUS, (_MODEL, c.POINTER(c.c_int32), _ERROR)),
    "bespoke_list_versions": (_STATUS, (_MODEL, _OUT, _ERROR)),
    "bespoke_rollback": (_STATUS, (_MODEL, _OUT, _ERROR)),
    "bespoke_reset": (_STATUS, (_MODEL, _ERROR)),
    "bespoke_export_adapter": (_STATUS, (_MODEL, Text, Text, c.c_int32, _ERROR)),
    "bespoke_import_adapter": (_STATUS, (_MODEL, Text, c.c_int32, c.POINTER(c.c_int64), _ERROR)),
    "bespoke_reset_for_new_base": (_STATUS, (c.POINTER(Bundle), Text, c.POINTER(Options), _ERROR)),
    "bespoke_cancel_new": (c.c_void_p, ()),
    "bespoke_cancel_set": (None, (c.c_void_p,)),
    "bespoke_cancel_free": (None, (c.c_void_p,)),
    "bespoke_train": (_STATUS, (_MODEL, c.POINTER(Training), c.POINTER(Call), _OUT, _ERROR)),
    "bespoke_evaluate": (_STATUS, (_MODEL, Text, Text, c.POINTER(Call), _OUT, _ERROR)),
    "bespoke_verify": (_STATUS, (_MODEL, c.POINTER(Call), _OUT, _ERROR)),
    "bespoke_session_open": (_STATUS, (_MODEL, c.POINTER(Generation), c.POINTER(_SESSION), _ERROR)),
    "bespoke_session_close": (None, (_SESSION,)),
    "bespoke_session_feed": (_STATUS, (_SESSION, Text, _ERROR)),
    "bespoke_session_next": (_STATUS, (_SESSION, c.POINTER(Call), _OUT, _ERROR)),
    "bespoke_score": (_STATUS, (_MODEL, Text, Text, c.POINTER(Call), _OUT, _ERROR)),
    "bespoke_classify": (_STATUS, (_MODEL, Text, Text, c.POINTER(Call), _OUT, _ERROR)),
    "bespoke_version": (c.c_char_p, ()),
    "bespoke_instruction_set": (c.c_char_p, ()),
}


def text(value: str | bytes) -> Text:
    """Pointer and length; the struct keeps the bytes."""
    data = value if isinstance(value, bytes) else value.encode()
    return Text(data, len(data))


def made(kind: type[c.Structure], **fields: Any) -> Any:
    """One that says its size; texts become pointer and length where the struct has them."""
    kinds = {field[0]: field[1] for field in kind._fields_}
    given = {name: text(value) if kinds[name] is Text else value for name, value in fields.items()}
    return kind(struct_size=c.sizeof(kind), **given)


class Library:
    """The functions of one libbespoke_core. Made by `load`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._functions = c.CDLL(str(path))
        for name, (returned, taken) in FUNCTIONS.items():
            function = getattr(self._functions, name)
            function.restype, function.argtypes = returned, taken

    def plain(self, name: str, *arguments: Any) -> Any:
        """Of a function that cannot fail."""
        return getattr(self._functions, name)(*arguments)

    def call(self, name: str, *arguments: Any) -> None:
        """Raises what the core says."""
        error = c.POINTER(Error)()
        if self.plain(name, *arguments, c.byref(error)):
            try:
                raise error_of(
                    {part: getattr(error.contents, part).decode("utf-8", "replace") for part in ("kind", *PARTS)}
                )
            finally:
                self.plain("bespoke_error_free", error)

    def ask(self, name: str, *arguments: Any) -> Any:
        """The JSON document that a function gives as its last result."""
        found = c.c_void_p()
        self.call(name, *arguments, c.byref(found))
        try:
            return json.loads(c.string_at(found.value)) if found.value else None
        finally:
            self.plain("bespoke_free", found)


def record(kind: type[Record], found: Mapping[str, Any]) -> Record:
    """A record out of JSON; what this version does not know yet is left out."""
    return kind(**{item.name: found[item.name] for item in fields(kind) if item.name in found})  # type: ignore[arg-type]


def error_of(said: Mapping[str, Any]) -> BespokeError:
    """What the core says of an error, as the error of the same name here, with the core's four parts."""
    kind = getattr(errors, str(said.get("kind")), None)
    if not (isinstance(kind, type) and issubclass(kind, BespokeError)):
        kind = BespokeError
    parts = {name: str(said.get(name, "")) for name in PARTS}
    return kind(parts.pop("subject"), **parts)


_held: Library | None = None  # what this process has loaded
_loading = threading.Lock()


def load() -> Library:
    """The library of the core that was installed with this package. MissingDependency, with what to run, where there is none.

    A process keeps the copy that it has loaded, whatever BESPOKE_CORE names later: two of them must not open one state.
    """
    global _held
    core = find()
    if core.library is None:
        raise MissingDependency(
            "The device core", got=core.reason, expected="a core that runs", next_step=core.next_step
        )
    try:
        with _loading:
            _held = _held or Library(core.library)
            return _held
    except (OSError, AttributeError) as problem:  # AttributeError: a function of the header that an older one lacks
        raise MissingDependency(
            f"{core.library}",
            got=f"a library that cannot be used ({problem})",
            expected="the device core of this version",
            next_step="Install bespoke-sdk again for this machine",
        ) from None
