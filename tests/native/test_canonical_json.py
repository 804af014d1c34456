# SPDX-License-Identifier: Apache-2.0
"""The text by which the core knows an example again: Python's json is the oracle."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bespoke.errors import DataError
from tests.native.state_lab import CoreState
from tests.support.checks import count, new_seed, record_check

NUMBERS = [
    0,
    -1,
    2**63,
    -(2**63) - 1,
    2**64,
    10**300,
    0.0,
    -0.0,
    1e15,
    1e16,
    1e-4,
    1e-5,
    5e-324,
    1.7976931348623157e308,
    0.1,
]
CHARACTERS = [
    *string.printable,
    *map(chr, range(32)),
    "\x7f",
    "\x80",
    "ü",
    "漢",
    "\u2028",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "😀",
    "\U0010ffff",
]


@pytest.fixture(scope="module")
def core(native_build: Path) -> Iterator[CoreState]:
    with CoreState(native_build / "tests" / "state_lab") as lab:
        yield lab


def canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def text(chance: random.Random) -> str:
    return "".join(chance.choices(CHARACTERS, k=chance.randrange(6)))


def value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(7 if depth < 5 else 4)
    if kind == 0:
        return chance.choice([None, True, False])
    if kind == 1:
        return chance.choice(
            [*NUMBERS, chance.randrange(-(10**20), 10**20), chance.gauss(0, 1) * 10.0 ** chance.randrange(-300, 300)]
        )
    if kind < 4:
        return text(chance)
    if kind == 4:
        return [value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return {text(chance): value(chance, depth + 1) for _ in range(chance.randrange(5))}


def test_one_text_for_one_value_however_it_is_written(core: CoreState) -> None:
    seed = new_seed()
    chance = random.Random(seed)
    values = max(300, count(30_000))
    for _ in range(values):
        example = {text(chance): value(chance) for _ in range(chance.randrange(5))}
        for written in (json.dumps(example), json.dumps(example, ensure_ascii=False, indent=1)):
            assert core.act("identify", json=written) == canonical(example)
    record_check("canonical JSON of the core against Python's", {"values": values}, seed)


REFUSED = {
    '{"a":NaN}': "not finite",
    '{"a":[-Infinity]}': "not finite",
    '{"a":1e999}': "not finite",
    '{"a":"\\ud800"}': "surrogate",
    '{"a":"\\udc00x"}': "surrogate",
    '{"a":1,"b":2,"a":1}': "twice",
    '{"a":' + "[" * 100_000 + "]" * 100_000 + "}": "nested too deeply",
    '{"a":1} {}': "not JSON",
    '{"a":1': "not JSON",
    "": "not JSON",
    "[1]": "a list",
    "null": "null",
    '"text"': "a string",
}


@pytest.mark.parametrize(("written", "got"), REFUSED.items(), ids=[what[:20] for what in REFUSED])
def test_what_is_no_json_object_is_refused(core: CoreState, written: str, got: str) -> None:
    with pytest.raises(DataError, match=got):
        core.act("identify", json=written)


def test_the_limit_is_on_the_canonical_text(core: CoreState) -> None:
    fits = '{"a":"' + "x" * (16 * 2**20 - 8) + '"}'
    assert core.act("identify", json=" " * 1000 + fits) == fits
    with pytest.raises(DataError, match=f"{16 * 2**20 + 1} bytes of JSON"):
        core.act("identify", json=fits.replace('"a"', '"ab"'))
