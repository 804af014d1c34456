# SPDX-License-Identifier: Apache-2.0
"""Writes noise.json, the known answers that every language's noise must meet: `python tests/conformance/make_noise.py`.

Standard library only, and nothing of bespoke: Philox in Python's integers, logarithm, root, sine and cosine in decimals
of 60 digits, one rounding to float32 at the very end. Running it again gives the same bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from decimal import Decimal, getcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

getcontext().prec = 60
WORD = 0xFFFFFFFF
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")

# From kat_vectors of Random123 (the authors' own library): counter, key, words.
PHILOX = [
    ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([WORD] * 4, [WORD] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]

FIRST = list(range(12))
# Places in the noise of seed 0, step 0, query 0, block 0, tensor 0 found by a search through the first 2^26 elements:
# where the words come closest to the ends of (0, 1) and the angle to a zero of the sine or cosine.
EXTREME = [59535980, 9320226, 22469882, 39708478, 39708479, 1819058, 1819059, 8463928, 8463929, 44126574]

DEFAULTS: dict[str, Any] = {
    **dict.fromkeys(("seed", "step", "query", "block", "tensor"), 0),
    "distribution": "normal",
    "flags": [],
}
CASES: list[dict[str, Any]] = [
    {"comment": "all counters zero", "shape": [8, 64]},
    {"comment": "rademacher: lowest bits of the same words", "shape": [8, 64], "distribution": "rademacher"},
    {
        "comment": "size not divisible by 4: the last counter is used in part",
        "shape": [3, 5],
        "places": list(range(15)),
    },
    {"comment": "one element", "shape": [1], "places": [0]},
    {"comment": "row-major: a column of [5, 3] and the row-major places", "shape": [5, 3], "places": list(range(15))},
    {"comment": "seed of 64 bits: low word is key 0, high word key 1", "seed": 0x0123456789ABCDEF, "shape": [8, 64]},
    {"comment": "largest seed", "seed": 2**64 - 1, "shape": [4, 16]},
    {"comment": "step is counter word 3", "step": 7, "shape": [4, 16]},
    {"comment": "query is counter word 2", "query": 3, "shape": [4, 16]},
    {"comment": "block is the upper half of counter word 1", "block": 5, "shape": [4, 16]},
    {"comment": "tensor is the lower half of counter word 1", "tensor": 5, "shape": [4, 16]},
    {
        "comment": "largest numbers of all counters",
        "step": WORD,
        "query": 2**31 - 1,
        "block": 0xFFFF,
        "tensor": 0xFFFF,
        "shape": [4, 16],
    },
    {
        "comment": "as in a run: lora_A of a 0.5B model, places across a piece and at the end",
        "seed": 42,
        "step": 299,
        "query": 1,
        "block": 23,
        "tensor": 13,
        "shape": [8, 4864],
        "places": [0, 1, 2, 3, 4863, 4864, 16383, 16384, 32767, 32768, 32769, 38908, 38909, 38910, 38911],
    },
    {
        "comment": "the same in rademacher",
        "seed": 42,
        "step": 299,
        "query": 1,
        "block": 23,
        "tensor": 13,
        "shape": [8, 4864],
        "distribution": "rademacher",
        "places": [0, 1, 2, 3, 4863, 4864, 16383, 16384, 32767, 32768, 32769, 38908, 38909, 38910, 38911],
    },
    {
        "comment": "logarithm near 0 and infinity, angle near each zero of sine and cosine",
        "flags": ["large"],
        "shape": [2**26],
        "places": EXTREME,
    },
]


def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & WORD, (p0 >> 32) ^ c3 ^ k1, p0 & WORD
        k0, k1 = (k0 + 0x9E3779B9) & WORD, (k1 + 0xBB67AE85) & WORD
    return [c0, c1, c2, c3]


def element(case: dict[str, Any], index: int) -> float:
    counter = [index // 4, case["block"] << 16 | case["tensor"], case["query"], case["step"]]
    words = philox(counter, [case["seed"] & WORD, case["seed"] >> 32])
    lane = index % 4
    if case["distribution"] == "rademacher":
        return 1.0 if words[lane] & 1 else -1.0
    first = lane & 2
    u0 = (Decimal(words[first]) + Decimal("0.5")) / 2**32
    radius = (-2 * u0.ln()).sqrt()
    # The angle is by definition the product as float64 rounds it; from there on all is exact.
    angle = Decimal(6.283185307179586 * ((words[first + 1] + 0.5) * 2.0**-32))
    return nearest_float32(radius * (sine(angle + PI / 2) if lane % 2 == 0 else sine(angle)))


def sine(angle: Decimal) -> Decimal:
    term = total = angle
    power = 1
    while abs(term) > Decimal("1e-58"):
        power += 2
        term = -term * angle * angle / (power * (power - 1))
        total += term
    return total


def nearest_float32(value: Decimal) -> float:
    """Among float32(float64(value)) and its neighbours, the one nearest to value: free of double rounding."""
    bits = struct.unpack("<I", struct.pack("<f", float(value)))[0]
    near = [struct.unpack("<f", struct.pack("<I", bits + move))[0] for move in (-1, 0, 1)]
    return min(near, key=lambda candidate: abs(Fraction(candidate) - Fraction(value)))


def main() -> None:
    tests = []
    for number, given in enumerate(CASES, start=1):
        case = DEFAULTS | given
        places = case.pop("places", FIRST)
        bits = [struct.unpack("<I", struct.pack("<f", element(case, place)))[0] for place in places]
        tests.append(
            {
                "id": number,
                "comment": case["comment"],
                "flags": case["flags"],
                "seed": f"0x{case['seed']:016x}",
                "step": case["step"],
                "query": case["query"],
                "block": case["block"],
                "tensor": case["tensor"],
                "shape": case["shape"],
                "distribution": case["distribution"],
                "places": places,
                "float32_bits": [f"0x{word:08x}" for word in bits],
                "tolerance_ulp": 0 if case["distribution"] == "rademacher" else 1,
            }
        )
    document = {
        "format": 1,
        "what": "z of the plan's `noise` instruction; places are indices into the row-major tensor",
        "generator": "make_noise.py",
        "tolerance": (
            "in units of the last place of float32. Rademacher is exact. Normals: ln, sin and cos of two libraries may "
            "differ by an ulp of float64, which can tip the one rounding to float32, so 1; never more."
        ),
        "flags": {"large": "the shape is large; an implementation may make only the counters of the places"},
        "philox4x32_10": [
            {"counter": hexadecimal(counter), "key": hexadecimal(key), "words": hexadecimal(words)}
            for counter, key, words in PHILOX
        ],
        "tests": tests,
    }
    for counter, key, words in PHILOX:
        assert philox(counter, key) == words, "this script's Philox disagrees with Random123"
    text = json.dumps(document, indent=1) + "\n"
    Path(__file__).with_name("noise.json").write_text(text, encoding="ascii")


def hexadecimal(words: Sequence[int]) -> list[str]:
    return [f"0x{word:08x}" for word in words]


if __name__ == "__main__":
    main()
