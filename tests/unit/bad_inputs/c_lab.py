# SPDX-License-Identifier: Apache-2.0
"""Calls bespoke.h through ctypes, in a process of its own: a call that crashes takes no test with it.

argv: the library, the bundle, a state. stdin: one call a line, as Python over the names below. stdout: a JSON line for each.
"""

from __future__ import annotations

import ctypes as c
import json
import sys
from typing import Any

PARTS = ("kind", "subject", "got", "expected", "next_step")


class Text(c.Structure):
    _fields_ = (("data", c.c_char_p), ("size", c.c_size_t))


class Error(c.Structure):
    _fields_ = (("struct_size", c.c_size_t), ("status", c.c_int32), *((name, c.c_char_p) for name in PARTS))


class Bundle(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t), ("path", Text), ("offset", c.c_uint64), ("size", c.c_uint64), ("descriptor", c.c_int32),
    )  # fmt: skip


class Options(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t), ("memory_mb", c.c_double), ("pin_sha256", Text), ("public_key", c.c_char_p),
        ("engine", c.c_void_p), ("threads", c.c_int32), ("require_authenticated", c.c_int32),
    )  # fmt: skip


class Training(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t), ("method", Text), ("steps", c.c_int64), ("seed", c.c_int64), ("has_seed", c.c_int32),
        ("settings", Text),
    )  # fmt: skip


class Call(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t), ("cancel", c.c_void_p), ("deadline_seconds", c.c_double), ("context", c.c_void_p),
        ("progress", c.c_void_p),
    )  # fmt: skip


library = c.CDLL(sys.argv[1])
bundle, state = sys.argv[2].encode(), sys.argv[3].encode()
model, report = c.c_void_p(), c.c_char_p()


def text(data: bytes | None) -> Text:
    return Text(data, len(data or b""))


def made(kind: type[c.Structure], fields: dict[str, Any]) -> Any:
    kinds = dict(kind._fields_)  # type: ignore[misc]
    given = {name: text(value) if kinds[name] is Text else value for name, value in fields.items()}
    return c.byref(kind(**{"struct_size": c.sizeof(kind), **given}))


def called(function: str, *arguments: Any) -> tuple[int, Any]:
    error = c.POINTER(Error)()
    status = library[function](*arguments, c.byref(error))
    return status, error


def opened(
    path: bytes | None, state: bytes | None, into: c.c_void_p | None = None, place: dict[str, Any] | None = None, **options: Any
) -> tuple[int, Any]:
    at = made(Bundle, {"path": path, **(place or {})})
    return called("bespoke_open", at, text(state), made(Options, options), c.byref(c.c_void_p() if into is None else into))


def train(call: dict[str, Any] | None = None, **settings: Any) -> tuple[int, Any]:
    return called("bespoke_train", model, made(Training, settings), made(Call, call or {}), c.byref(report))


def evaluate(split: bytes | None) -> tuple[int, Any]:
    return called("bespoke_evaluate", model, text(split), None, c.byref(report))


def changed(what: str, number: float) -> tuple[int, Any]:
    return called(f"bespoke_set_{what}", model, c.c_double(number))


assert opened(bundle, state, model)[0] == 0
for line in sys.stdin:
    status, error = eval(line)
    said = {name: getattr(error.contents, name).decode() for name in PARTS} if error else {}
    print(json.dumps({"status": status, "of_error": error.contents.status if error else None, **said}), flush=True)
