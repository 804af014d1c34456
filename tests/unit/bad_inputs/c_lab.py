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


class Error(c.Structure):
    _fields_ = (("code", c.c_int), *((name, c.c_char_p) for name in PARTS))


class Options(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t), ("memory_mb", c.c_double), ("threads", c.c_int), ("pin_sha256", c.c_char_p),
        ("public_key", c.c_char_p), ("engine", c.c_void_p),
    )  # fmt: skip


class Training(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t), ("method", c.c_char_p), ("steps", c.c_int64), ("seed", c.c_int64), ("settings", c.c_char_p),
        ("context", c.c_void_p), ("on_step", c.c_void_p),
    )  # fmt: skip


library = c.CDLL(sys.argv[1])
bundle, state = sys.argv[2].encode(), sys.argv[3].encode()
model, report = c.c_void_p(), c.c_char_p()


def made(kind: type[c.Structure], fields: dict[str, Any]) -> Any:
    return c.byref(kind(**{"struct_size": c.sizeof(kind), **fields}))


def called(function: str, *arguments: Any) -> tuple[int, Any]:
    error = c.POINTER(Error)()
    code = library[function](*arguments, c.byref(error))
    return code, error


def opened(bundle: bytes | None, state: bytes | None, into: c.c_void_p | None = None, **options: Any) -> tuple[int, Any]:
    return called("bespoke_open", bundle, state, made(Options, options), c.byref(c.c_void_p() if into is None else into))


def train(**settings: Any) -> tuple[int, Any]:
    return called("bespoke_train", model, made(Training, {"seed": -1, **settings}), c.byref(report))


def evaluate(split: bytes | None) -> tuple[int, Any]:
    return called("bespoke_evaluate", model, split, c.byref(report))


assert opened(bundle, state, model)[0] == 0
for line in sys.stdin:
    code, error = eval(line)
    said = {name: getattr(error.contents, name).decode() for name in PARTS} if error else {}
    print(json.dumps({"code": code, "code_of_error": error.contents.code if error else None, **said}), flush=True)
