# SPDX-License-Identifier: Apache-2.0
"""Noise against Random123's known answers, against the shared vectors and against Philox in plain integers."""

from __future__ import annotations

import json
import math
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke.errors import PlanError
from bespoke.rules import noise as module
from bespoke.rules.noise import noise, philox
from tests.unit.rules.numbers import integers, ulps

VECTORS = json.loads((Path(__file__).parents[2] / "conformance" / "noise.json").read_text())
AT_ZERO: dict[str, Any] = {"seed": 0, "step": 0, "query": 0, "block": 0, "tensor": 0}


@pytest.mark.parametrize("vector", VECTORS["philox4x32_10"], ids=["zeros", "ones", "pi"])
def test_words_are_those_of_random123(vector: dict[str, list[str]]) -> None:
    counter, key, words = ([int(word, 16) for word in vector[name]] for name in ("counter", "key", "words"))
    got = philox(counter[0], 1, (counter[1], counter[2], counter[3]), key[1] << 32 | key[0])
    assert got[:, 0].tolist() == words


def test_words_are_those_of_plain_integers_for_random_counters_and_keys() -> None:
    draw = random.Random(5)
    for _ in range(50):
        first, *rest = (draw.randrange(1 << 32) for _ in range(4))
        first = min(first, (1 << 32) - 3)
        seed = draw.randrange(1 << 64)
        got = philox(first, 3, (rest[0], rest[1], rest[2]), seed)
        for offset in range(3):
            expected = integers([first + offset, *rest], [seed % (1 << 32), seed >> 32])
            assert got[:, offset].tolist() == expected


@pytest.mark.parametrize("vector", VECTORS["tests"], ids=[f"{v['id']}" for v in VECTORS["tests"]])
def test_values_meet_the_shared_vectors(vector: dict[str, Any]) -> None:
    where = {name: vector[name] for name in ("step", "query", "block", "tensor", "distribution")}
    seed = int(vector["seed"], 16)
    places = np.array(vector["places"])
    if "large" in vector["flags"]:  # only the counters of the places
        counter = (where["block"] << 16 | where["tensor"], where["query"], where["step"])
        values = []
        for place in vector["places"]:
            four = np.zeros(4, np.float32)
            module._fill_normal(four, philox(place // 4, 1, counter, seed))
            values.append(four[place % 4])
        got = np.array(values, np.float32)
    else:
        got = noise(vector["shape"], seed=seed, **where).reshape(-1)[places]
    expected = np.array([int(bits, 16) for bits in vector["float32_bits"]], np.uint32).view(np.float32)
    assert ulps(got, expected).max() <= vector["tolerance_ulp"]


def test_vectors_are_what_their_generator_writes(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "conformance"
    source = (folder / "make_noise.py").read_text()
    copy = tmp_path / "make_noise.py"
    copy.write_text(source)
    exec(compile(source, str(copy), "exec"), {"__name__": "__main__", "__file__": str(copy)})
    assert (tmp_path / "noise.json").read_bytes() == (folder / "noise.json").read_bytes()


@pytest.mark.parametrize("distribution", ["normal", "rademacher"])
def test_bits_do_not_depend_on_how_the_tensor_is_cut(distribution: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = noise((70, 1001), distribution=distribution, **AT_ZERO)
    assert np.array_equal(whole.reshape(-1)[:13], noise((13,), distribution=distribution, **AT_ZERO))
    for piece in (1, 7, 1000):
        monkeypatch.setattr(module, "PIECE", piece)
        size = 4 * piece * 3 + 2
        assert np.array_equal(whole.reshape(-1)[:size], noise((size,), distribution=distribution, **AT_ZERO))


def test_out_is_filled_and_returned() -> None:
    out = np.full((3, 7), np.nan, np.float32)
    assert noise((3, 7), out=out, **AT_ZERO) is out
    assert np.array_equal(out, noise((3, 7), **AT_ZERO))


def test_normals_have_the_moments_of_a_normal() -> None:
    z = noise((1 << 20,), seed=3, step=1, query=0, block=1, tensor=2).astype(np.float64)
    error = 1 / math.sqrt(z.size)
    assert abs(z.mean()) < 5 * error
    assert abs(z.var() - 1) < 5 * error * math.sqrt(2)
    assert abs((z**4).mean() - 3) < 5 * error * math.sqrt(96)
    lanes = z.reshape(-1, 4).T
    assert np.abs(np.corrcoef(lanes) - np.eye(4)).max() < 5 * 2 * error


def test_rademacher_is_plus_or_minus_one_in_equal_shares() -> None:
    z = noise((1 << 20,), seed=3, step=1, query=0, block=1, tensor=2, distribution="rademacher")
    assert set(np.unique(z)) == {-1.0, 1.0}
    assert abs(float(z.mean())) < 5 / 1024


def test_each_number_of_the_counter_gives_other_noise() -> None:
    kinds = [AT_ZERO] + [{**AT_ZERO, name: 1} for name in AT_ZERO] + [{**AT_ZERO, "seed": 1 << 32}]
    rows = {noise((16,), **kind).tobytes() for kind in kinds}
    assert len(rows) == len(kinds)


def test_an_empty_tensor_is_empty() -> None:
    assert noise((0, 4), **AT_ZERO).shape == (0, 4)


def test_temporaries_stay_below_a_megabyte() -> None:
    out = np.zeros((4864, 896), np.float32)
    tracemalloc.start()
    try:
        noise(out.shape, out=out, **AT_ZERO)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "wrong",
    [{"seed": 1 << 64}, {"seed": -1}, {"step": 1 << 32}, {"query": 1 << 31}, {"block": 1 << 16}, {"tensor": -1}],
    ids=str,
)
def test_a_number_out_of_range_is_named(wrong: dict[str, int]) -> None:
    with pytest.raises(PlanError) as caught:
        noise((4,), **{**AT_ZERO, **wrong})
    (name,) = wrong
    assert name in caught.value.subject
    assert str(wrong[name]) == caught.value.got


def test_an_unknown_distribution_is_refused() -> None:
    with pytest.raises(PlanError, match="cauchy"):
        noise((4,), distribution="cauchy", **AT_ZERO)  # type: ignore[arg-type]


@pytest.mark.parametrize("out", [np.zeros((5,), np.float32), np.zeros((4,)), np.zeros((8,), np.float32)[::2]], ids=str)
def test_an_out_that_does_not_fit_is_refused(out: np.ndarray) -> None:
    with pytest.raises(PlanError, match="out"):
        noise((4,), out=out, **AT_ZERO)
