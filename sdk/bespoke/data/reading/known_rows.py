# SPDX-License-Identifier: Apache-2.0
"""Two kinds of rows that many data sets use, converted to examples of bespoke's shapes.

    sharegpt  {"conversations": [{"from": "human", "value": ...}, {"from": "gpt", "value": ...}]}    messages
    alpaca    {"instruction": ..., "input": ..., "output": ...}                                      prompt and completion

The prompt of an Alpaca row is its instruction. If it has an input, an empty line and the input follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from bespoke.data.reading.columns import mapped
from bespoke.errors import DataError, kind_of, shown

__all__ = ["KEYS_OF_KNOWN", "KNOWN_ROWS", "KnownRows", "example_of", "known_rows_of"]

KnownRows = Literal["sharegpt", "alpaca"]
KNOWN_ROWS: tuple[KnownRows, ...] = get_args(KnownRows)

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "system": "system",
}
_WANTED: dict[KnownRows, tuple[str, ...]] = {"sharegpt": ("conversations",), "alpaca": ("instruction", "output")}
KEYS_OF_KNOWN: dict[KnownRows, tuple[str, ...]] = {
    "sharegpt": ("conversations",),
    "alpaca": ("instruction", "input", "output"),
}
_ALPACA = {"prompt": "{instruction}\n\n{input}", "completion": "output"}


def known_rows_of(row: Mapping[str, Any]) -> list[KnownRows]:
    """The kinds whose keys a row has."""
    kinds: list[KnownRows] = []
    turns = row.get("conversations")
    if isinstance(turns, list) and (not turns or isinstance(turns[0], Mapping)):
        kinds.append("sharegpt")
    if all(key in row for key in _WANTED["alpaca"]):
        kinds.append("alpaca")
    return kinds


def example_of(kind: KnownRows, row: Mapping[str, Any], where: str) -> tuple[dict[str, Any], set[str]]:
    """Converts a row of this kind to an example; also returns the keys that were used."""
    missing = [key for key in _WANTED[kind] if key not in row]
    if missing:
        raise DataError(
            where,
            got=f"the keys {', '.join(map(repr, row)) or 'none'}, without {' and '.join(map(repr, missing))}",
            expected=f"{' and '.join(map(repr, _WANTED[kind]))}, as rows of {kind} have",
            next_step="Give every row the same keys, or leave format open",
        )

    if kind == "alpaca":
        return _alpaca(row, where)

    turns = row["conversations"]
    if not isinstance(turns, list):
        raise DataError(
            f"{where}.conversations", got=kind_of(turns), expected="a list of messages", next_step="Correct the row"
        )
    messages = [_message(turn, f"{where}.conversations[{i}]") for i, turn in enumerate(turns)]
    return {"messages": messages}, {"conversations"}


def _alpaca(row: Mapping[str, Any], where: str) -> tuple[dict[str, Any], set[str]]:
    example, used = mapped({"input": "", **row}, _ALPACA, where)
    return {name: example[name] for name in _ALPACA}, used


def _message(turn: Any, where: str) -> dict[str, Any]:
    """A turn as a message. Other keys of the turn, such as a weight, are kept."""
    keys = ("from", "value") if isinstance(turn, Mapping) and "from" in turn else ("role", "content")
    if not isinstance(turn, Mapping) or not all(key in turn for key in keys):
        got = kind_of(turn) if not isinstance(turn, Mapping) else f"the keys {', '.join(map(repr, turn)) or 'none'}"
        raise DataError(
            where, got=got, expected='{"from": "human" or "gpt", "value": text}', next_step="Correct the row"
        )

    speaker = turn[keys[0]]
    role = _ROLES.get(speaker.strip().lower()) if isinstance(speaker, str) else None
    if role is None:
        raise DataError(
            f"{where}.{keys[0]}",
            got=shown(speaker),
            expected=f"one of {', '.join(_ROLES)}",
            next_step="Name who speaks by one of these words, or leave the row out",
        )
    return {**{key: value for key, value in turn.items() if key not in keys}, "role": role, "content": turn[keys[1]]}
