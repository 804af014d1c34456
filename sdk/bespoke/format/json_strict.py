# SPDX-License-Identifier: Apache-2.0
"""Strict JSON for files from outside: bounded before it is parsed, and unambiguous.

The standard parser accepts duplicate keys (the last wins; in other parsers the first does), NaN, and nesting until the
stack overflows. A document must not decide how much memory its reader takes, nor mean one thing here and another on the
device. So size, number of items and depth are counted on the bytes first. Everything else is refused while parsing.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

from bespoke.errors import BespokeError

__all__ = ["check_strict", "dumps_canonical", "loads_strict", "shown_json"]

MAX_DEPTH = 32
MAX_ITEMS = 2_000_000
MAX_INTEGER_DIGITS = 20  # 2**64 has 20; nothing in a bundle is larger

# Possessive quantifiers: a long string costs one pass and no backtracking stack.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BRACKETS = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class _Refused(Exception):
    """A problem on its way from a parser's callback to `loads_strict`."""

    def __init__(self, got: str, expected: str) -> None:
        super().__init__(got, expected)
        self.got = got
        self.expected = expected


def shown_json(value: Any, limit: int = 80) -> str:
    """A value of a document as JSON writes it: `true`, not `True`. A text is in single quotes, as names in all errors."""
    return repr(value)[:limit] if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)[:limit]


def loads_strict(
    data: bytes,
    *,
    subject: str,
    error: type[BespokeError],
    max_bytes: int,
    max_depth: int = MAX_DEPTH,
    max_items: int = MAX_ITEMS,
    next_step: str = "Get the file again from where it was built",
) -> Any:
    """Parse `data` (UTF-8, without BOM) or raise `error` about `subject`.

    `max_depth` limits the nesting of arrays and objects, `max_items` the number of their elements and members in total.
    Also refused: duplicate keys, NaN, infinity and numbers that overflow to it, integers of more than 20 digits, unpaired
    surrogates.
    """
    return _parsed(data, subject, error, max_bytes, max_depth, max_items, next_step, _members)


def check_strict(
    data: bytes,
    *,
    subject: str,
    error: type[BespokeError],
    max_bytes: int,
    max_depth: int = MAX_DEPTH,
    max_items: int = MAX_ITEMS,
    next_step: str = "Get the file again from where it was built",
) -> None:
    """Check a document that another parser reads afterwards. Keeps no objects, so it takes next to no memory."""
    members = _members if b"\\u" in data else _checked_members  # surrogates show in the whole text only
    _parsed(data, subject, error, max_bytes, max_depth, max_items, next_step, members)


def _parsed(
    data: bytes,
    subject: str,
    error: type[BespokeError],
    max_bytes: int,
    max_depth: int,
    max_items: int,
    next_step: str,
    members: Callable[[list[tuple[str, Any]]], Any],
) -> Any:
    def refuse(got: str, expected: str) -> BespokeError:
        return error(subject, got=got, expected=expected, next_step=next_step)

    if len(data) > max_bytes:
        raise refuse(f"{len(data)} bytes of JSON", f"at most {max_bytes}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise refuse(f"the byte 0x{data[problem.start]:02x} at {problem.start}", "UTF-8 text") from None

    bare = _STRING.sub(b"", data)
    items = bare.count(b",") + bare.count(b"[") + bare.count(b"{")
    if items > max_items:
        raise refuse(f"{items} items", f"at most {max_items}")
    if _deeper_than(bare, max_depth):
        raise refuse(f"nesting deeper than {max_depth}, or brackets without partner", f"at most {max_depth} levels")

    try:
        value = json.loads(
            text, object_pairs_hook=members, parse_constant=_constant, parse_int=_integer, parse_float=_float
        )
        if "\\u" in text:  # the only way to write half a surrogate pair
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except _Refused as problem:
        raise refuse(problem.got, problem.expected) from None
    except json.JSONDecodeError as problem:
        raise refuse(f"text that is not JSON ({problem.msg} at character {problem.pos})", "one JSON value") from None
    except UnicodeEncodeError:
        raise refuse("half of a surrogate pair", "whole characters") from None
    return value


def dumps_canonical(value: Any, *, indent: int | None = None) -> bytes:
    """JSON text of a value in canonical form: sorted keys, UTF-8, a final newline. NaN raises ValueError."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)
    return text.encode("utf-8") + b"\n"


def _deeper_than(bare: bytes, max_depth: int) -> bool:
    """Whether brackets nest deeper than `max_depth` or have no partner. Each pass removes the innermost level.

    Both kinds of bracket count as the same: a parser stops at the first mismatch, so it never gets deeper.
    """
    brackets = bare.translate(None, _NOT_BRACKETS).translate(_BRACKETS)
    for _ in range(max_depth):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"the key {key[:100]!r} twice in one object", "each key once")
            seen.add(key)
    return members


def _checked_members(pairs: list[tuple[str, Any]]) -> None:
    _members(pairs)


def _constant(name: str) -> Any:
    raise _Refused(name, "finite numbers")


def _integer(digits: str) -> int:
    if len(digits) > MAX_INTEGER_DIGITS:
        raise _Refused(f"an integer of {len(digits)} characters", f"at most {MAX_INTEGER_DIGITS}")
    return int(digits)


def _float(digits: str) -> float:
    value = float(digits) if len(digits) <= 400 else math.inf
    if not math.isfinite(value):
        raise _Refused(f"the number {digits[:40]}", "finite numbers")
    return value
