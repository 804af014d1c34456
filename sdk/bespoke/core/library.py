# SPDX-License-Identifier: Apache-2.0
"""libbespoke_core in this process: the structs and functions of bespoke.h. It takes texts, returns JSON and raises SDK errors.

A call releases Python's lock while it runs, so other threads continue. Tests compare the tables here with the header.
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
from bespoke.core.finding import find, library_of
from bespoke.errors import BespokeError, MissingDependency
from bespoke.remedies import from_json

__all__ = ["FUNCTIONS", "STRUCTS", "Library", "error_of", "load", "record", "struct", "text"]

Record = TypeVar("Record")
PARTS = ("subject", "got", "expected", "next_step")


class CText(c.Structure):
    _fields_ = (("data", c.c_char_p), ("size", c.c_size_t))


class CError(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("status", c.c_int32),
        ("kind", c.c_char_p),
        *((part, c.c_char_p) for part in PARTS),
        ("references", c.c_char_p),
    )


class CBundle(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("path", CText),
        ("offset", c.c_uint64),
        ("size", c.c_uint64),
        ("descriptor", c.c_int32),
        ("reserved", c.c_int32),
    )


class COptions(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("memory_mb", c.c_double),
        ("pin_sha256", CText),
        ("public_key", c.c_char_p),
        ("engine", c.c_void_p),
        ("threads", c.c_int32),
        ("require_authenticated", c.c_int32),
        ("cache", CText),
        ("limit_counts", c.c_int32),
        ("reserved", c.c_int32),
    )


class CTraining(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("method", CText),
        ("run_steps", c.c_int64),
        ("most_steps", c.c_int64),
        ("seed", c.c_int64),
        ("settings", CText),
        ("has_seed", c.c_int32),
        ("new_run", c.c_int32),
    )


class CExample(c.Structure):
    _fields_ = (("struct_size", c.c_size_t), ("json", CText), ("id", CText), ("use", CText))


class CProgress(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("phase", c.c_int32),
        ("reserved", c.c_int32),
        ("step", c.c_int64),
        ("steps", c.c_int64),
        ("loss", c.c_double),
        ("footprint_bytes", c.c_int64),
    )


OnProgress = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.POINTER(CProgress))


class CCall(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("cancel", c.c_void_p),
        ("deadline_seconds", c.c_double),
        ("context", c.c_void_p),
        ("progress", OnProgress),
        ("wait_seconds", c.c_double),
        ("busy_seconds", c.c_double),
    )


class CGeneration(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("max_tokens", c.c_int64),
        ("temperature", c.c_double),
        ("top_p", c.c_double),
        ("top_k", c.c_int64),
        ("seed", c.c_uint64),
        ("stop_texts", CText),
        ("notes", c.c_int32),
        ("reserved", c.c_int32),
    )


class CPiece(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("text", CText),
        ("token", c.c_int64),
        ("tokens", c.c_int64),
        ("ended", c.c_int32),
        ("reserved", c.c_int32),
    )


# Name in bespoke.h -> the struct here. The struct of an engine's table is in engine_table.py.
STRUCTS: dict[str, type[c.Structure]] = {
    "bespoke_text": CText,
    "bespoke_error": CError,
    "bespoke_bundle": CBundle,
    "bespoke_options": COptions,
    "bespoke_example": CExample,
    "bespoke_training": CTraining,
    "bespoke_progress": CProgress,
    "bespoke_call": CCall,
    "bespoke_generation": CGeneration,
    "bespoke_piece": CPiece,
}

_MODEL, _SESSION, _ERROR = c.c_void_p, c.c_void_p, c.POINTER(c.POINTER(CError))
_OUT = c.POINTER(c.c_void_p)  # a text, to be freed
_STATUS = c.c_int32
_CALL = c.POINTER(CCall)
# Name in bespoke.h -> result, arguments.
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "bespoke_error_free": (None, (c.POINTER(CError),)),
    "bespoke_free": (None, (c.c_void_p,)),
    "bespoke_set_log": (None, (c.c_void_p, c.c_void_p)),
    "bespoke_open": (_STATUS, (c.POINTER(CBundle), CText, c.POINTER(COptions), _CALL, c.POINTER(_MODEL), _ERROR)),
    "bespoke_interrupt": (_STATUS, (_MODEL, _ERROR)),
    "bespoke_close": (_STATUS, (_MODEL, c.c_double, _ERROR)),
    "bespoke_release": (None, (_MODEL,)),
    "bespoke_install": (_STATUS, (c.POINTER(CText), c.c_size_t, CText, c.POINTER(COptions), _CALL, _ERROR)),
    "bespoke_authenticated": (c.c_char_p, (_MODEL,)),
    "bespoke_set_limit": (_STATUS, (_MODEL, c.c_double, _ERROR)),
    "bespoke_set_pace": (_STATUS, (_MODEL, c.c_double, _ERROR)),
    "bespoke_add_example": (_STATUS, (_MODEL, c.POINTER(CExample), _CALL, _OUT, _ERROR)),
    "bespoke_add_examples": (
        _STATUS,
        (_MODEL, c.POINTER(c.POINTER(CExample)), c.c_size_t, _CALL, _OUT, _ERROR),
    ),
    "bespoke_list_examples": (_STATUS, (_MODEL, CText, c.c_int64, _OUT, _ERROR)),
    "bespoke_count_examples": (_STATUS, (_MODEL, c.POINTER(c.c_int64), _ERROR)),
    "bespoke_correct": (_STATUS, (_MODEL, CText, CText, _CALL, _OUT, _ERROR)),
    "bespoke_forget_example": (_STATUS, (_MODEL, CText, _CALL, _OUT, _ERROR)),
    "bespoke_describe": (_STATUS, (_MODEL, _OUT, _ERROR)),
    "bespoke_count_tokens": (_STATUS, (_MODEL, CText, c.POINTER(c.c_int64), _ERROR)),
    "bespoke_trim": (_STATUS, (_MODEL, _ERROR)),
    "bespoke_current_run": (_STATUS, (_MODEL, _OUT, _ERROR)),
    "bespoke_planned_training": (_STATUS, (_MODEL, _OUT, _ERROR)),
    "bespoke_check_training": (_STATUS, (_MODEL, c.POINTER(CTraining), _ERROR)),
    "bespoke_abandon_run": (_STATUS, (_MODEL, _CALL, c.POINTER(c.c_int32), _ERROR)),
    "bespoke_list_versions": (_STATUS, (_MODEL, _OUT, _ERROR)),
    "bespoke_rollback": (_STATUS, (_MODEL, _CALL, _OUT, _ERROR)),
    "bespoke_reset": (_STATUS, (_MODEL, _CALL, _ERROR)),
    "bespoke_export_adapter": (_STATUS, (_MODEL, CText, CText, c.c_int32, _CALL, _ERROR)),
    "bespoke_import_adapter": (_STATUS, (_MODEL, CText, c.c_int32, _CALL, c.POINTER(c.c_int64), _ERROR)),
    "bespoke_reset_for_new_base": (_STATUS, (c.POINTER(CBundle), CText, c.POINTER(COptions), _CALL, _ERROR)),
    "bespoke_cancel_new": (c.c_void_p, ()),
    "bespoke_cancel_set": (None, (c.c_void_p,)),
    "bespoke_cancel_free": (None, (c.c_void_p,)),
    "bespoke_train": (_STATUS, (_MODEL, c.POINTER(CTraining), _CALL, _OUT, _ERROR)),
    "bespoke_evaluate": (_STATUS, (_MODEL, CText, CText, _CALL, _OUT, _ERROR)),
    "bespoke_verify": (_STATUS, (_MODEL, _CALL, _OUT, _ERROR)),
    "bespoke_federation_join": (_STATUS, (_MODEL, _CALL, _ERROR)),
    "bespoke_federation_leave": (_STATUS, (_MODEL, _CALL, _ERROR)),
    "bespoke_federation_status": (_STATUS, (_MODEL, _OUT, _ERROR)),
    "bespoke_federation_request": (_STATUS, (_MODEL, _OUT, _ERROR)),
    "bespoke_federation_respond": (_STATUS, (_MODEL, CText, CText, _CALL, _ERROR)),
    "bespoke_federation_take_part": (_STATUS, (_MODEL, _CALL, _OUT, _ERROR)),
    "bespoke_federation_adopt": (_STATUS, (_MODEL, _CALL, _OUT, _ERROR)),
    "bespoke_session_open": (_STATUS, (_MODEL, c.POINTER(CGeneration), c.POINTER(_SESSION), _ERROR)),
    "bespoke_session_close": (None, (_SESSION,)),
    "bespoke_session_feed": (_STATUS, (_SESSION, CText, _ERROR)),
    "bespoke_session_next": (_STATUS, (_SESSION, _CALL, c.POINTER(c.POINTER(CPiece)), _ERROR)),
    "bespoke_score": (_STATUS, (_MODEL, CText, CText, _CALL, _OUT, _ERROR)),
    "bespoke_classify": (_STATUS, (_MODEL, CText, CText, _CALL, _OUT, _ERROR)),
    "bespoke_version": (c.c_char_p, ()),
    "bespoke_api_version": (c.c_uint32, ()),
    "bespoke_instruction_set": (c.c_char_p, ()),
}


def text(value: str | bytes) -> CText:
    """Returns a text as pointer and length. The struct keeps the bytes."""
    data = value if isinstance(value, bytes) else value.encode()
    return CText(data, len(data))


def struct(kind: type[c.Structure], **fields: Any) -> Any:
    """Returns a struct of bespoke.h with its size filled in. Texts become pointer and length where the struct has a CText."""
    kinds = {field[0]: field[1] for field in kind._fields_}
    given = {name: text(value) if kinds[name] is CText else value for name, value in fields.items()}
    return kind(struct_size=c.sizeof(kind), **given)


class Library:
    """The functions of a libbespoke_core. `load` creates it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._functions = c.CDLL(str(path))
        for name, (returned, taken) in FUNCTIONS.items():
            function = getattr(self._functions, name)
            function.restype, function.argtypes = returned, taken

    def plain(self, name: str, *arguments: Any) -> Any:
        """Calls a function that cannot fail."""
        return getattr(self._functions, name)(*arguments)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function that can fail. Raises the core's error."""
        error = c.POINTER(CError)()
        if self.plain(name, *arguments, c.byref(error)):
            try:
                raise error_of(_parts_of(error.contents))
            finally:
                self.plain("bespoke_error_free", error)

    def ask(self, name: str, *arguments: Any) -> Any:
        """Calls a function that can fail, and returns the JSON document that is its last result."""
        document = c.c_void_p()
        self.call(name, *arguments, c.byref(document))
        try:
            return json.loads(c.string_at(document.value)) if document.value else None
        finally:
            self.plain("bespoke_free", document)


def _parts_of(error: CError) -> dict[str, Any]:
    """Returns the parts of an error record. The record of an older library has no `references`."""
    parts: dict[str, Any] = {part: getattr(error, part).decode("utf-8", "replace") for part in ("kind", *PARTS)}
    has_references = error.struct_size >= c.sizeof(CError) and error.references
    return {**parts, "references": error.references.decode() if has_references else ""}


def record(kind: type[Record], values: Mapping[str, Any]) -> Record:
    """Returns a record from JSON. Leaves out fields that this version does not know."""
    return kind(**{item.name: values[item.name] for item in fields(kind) if item.name in values})  # type: ignore[arg-type]


def error_of(event: Mapping[str, Any]) -> BespokeError:
    """Returns the SDK's error for an error of the core, with the same name and the same four parts.

    `references` is JSON with the parts that name verbs and settings, which Python and C call differently.
    """
    references = json.loads(event.get("references") or "{}")
    kind = getattr(errors, str(event.get("kind")), None)
    if not (isinstance(kind, type) and issubclass(kind, BespokeError)):
        kind = BespokeError
    parts = {name: from_json(references.get(name, event.get(name, ""))) for name in PARTS}
    return kind(parts.pop("subject"), **parts)


_loaded: Library | None = None  # stays for the life of this process
_loading = threading.Lock()


def load() -> Library:
    """Returns the library of the core. Raises MissingDependency if there is none that runs here.

    A process keeps the copy that it loaded first, even if BESPOKE_CORE changes: two copies must not open one state.
    """
    global _loaded
    library = library_of(find().required())
    try:
        with _loading:
            _loaded = _loaded or Library(library)
            return _loaded
    except (OSError, AttributeError) as problem:  # AttributeError: a function of the header that an older one lacks
        raise MissingDependency(
            f"{library}",
            got=f"a library that cannot be used ({problem})",
            expected="the device core of this version",
            next_step="Install bespoke-sdk again for this machine",
        ) from None
