# SPDX-License-Identifier: Apache-2.0
"""The structs of bespoke.h for ctypes. Needs the standard library alone: processes of tests that have only the core import it."""

from __future__ import annotations

import ctypes as c
from typing import Any

PARTS = ("kind", "subject", "got", "expected", "next_step")


class Text(c.Structure):
    _fields_ = (("data", c.c_char_p), ("size", c.c_size_t))


class Error(c.Structure):
    _fields_ = (("struct_size", c.c_size_t), ("status", c.c_int32), *((name, c.c_char_p) for name in PARTS))


class Bundle(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("path", Text),
        ("offset", c.c_uint64),
        ("size", c.c_uint64),
        ("descriptor", c.c_int32),
        ("reserved", c.c_int32),
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
        ("limit_counts", c.c_int32),
        ("reserved", c.c_int32),
    )


class Training(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("method", Text),
        ("run_steps", c.c_int64),
        ("most_steps", c.c_int64),
        ("seed", c.c_int64),
        ("settings", Text),
        ("has_seed", c.c_int32),
        ("new_run", c.c_int32),
    )


class Example(c.Structure):
    _fields_ = (("struct_size", c.c_size_t), ("json", Text), ("id", Text), ("use", Text))


class Call(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("cancel", c.c_void_p),
        ("deadline_seconds", c.c_double),
        ("context", c.c_void_p),
        ("progress", c.c_void_p),
        ("wait_seconds", c.c_double),
        ("busy_seconds", c.c_double),
    )


def text(data: bytes | None) -> Text:
    return Text(data, len(data or b""))


def made(kind: type[c.Structure], **fields: Any) -> Any:
    """A pointer to one that says its size; bytes become texts where the struct has texts."""
    kinds = dict(kind._fields_)  # type: ignore[misc]
    given = {name: text(value) if kinds[name] is Text else value for name, value in fields.items()}
    return c.byref(kind(**{"struct_size": c.sizeof(kind), **given}))


def parts_of(error: Any) -> dict[str, str]:
    """The parts behind a pointer to an Error."""
    return {name: getattr(error.contents, name).decode() for name in PARTS}
