# SPDX-License-Identifier: Apache-2.0
"""Calls bespoke.h through ctypes, in a process of its own: a call that crashes takes no test with it.

argv: the library, the bundle, a state. stdin: one call a line, as Python over the names below. stdout: a JSON line for each.
"""

from __future__ import annotations

import ctypes as c
import json
import sys
from typing import Any

from tests.support.c_structs import Bundle, Call, Error, Example, Options, Training, made, parts_of, text

library = c.CDLL(sys.argv[1])
bundle, state = sys.argv[2].encode(), sys.argv[3].encode()
model, report = c.c_void_p(), c.c_char_p()


def called(function: str, *arguments: Any) -> tuple[int, Any]:
    error = c.POINTER(Error)()
    status = library[function](*arguments, c.byref(error))
    return status, error


def opened(
    path: bytes | None,
    state: bytes | None,
    into: c.c_void_p | None = None,
    place: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[int, Any]:
    at = made(Bundle, path=path, **(place or {}))
    return called(
        "bespoke_open", at, text(state), made(Options, **options), None, c.byref(c.c_void_p() if into is None else into)
    )


def train(call: dict[str, Any] | None = None, **settings: Any) -> tuple[int, Any]:
    return called("bespoke_train", model, made(Training, **settings), made(Call, **(call or {})), c.byref(report))


def evaluate(split: bytes | None) -> tuple[int, Any]:
    return called("bespoke_evaluate", model, text(split), text(None), None, c.byref(report))


def add(json: bytes, **fields: Any) -> tuple[int, Any]:
    return called("bespoke_add_example", model, made(Example, json=json, **fields), None, c.byref(report))


def changed(what: str, number: float) -> tuple[int, Any]:
    return called(f"bespoke_set_{what}", model, c.c_double(number))


assert opened(bundle, state, model)[0] == 0
for line in sys.stdin:
    status, error = eval(line)
    said = parts_of(error) if error else {}
    print(json.dumps({"status": status, "of_error": error.contents.status if error else None, **said}), flush=True)
