# SPDX-License-Identifier: Apache-2.0
"""The core chooses the token that sdk/bespoke/rules/sampling.py chooses: of logits drawn at random, with ties, forbidden tokens and
every setting."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke.errors import GenerationError
from bespoke.rules.sampling import choose_token
from tests.support.checks import count, new_seed, record_check

SMALL, LARGE = 211, 50_001  # vocabularies
DRAWS = {SMALL: 20_000, LARGE: 1_000}
GREEDY = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": 0, "position": 0}


def core(build: Path, folder: Path, logits: np.ndarray, draws: list[dict[str, Any]]) -> list[Any]:
    """What the core chooses from each row: a token, or an error as an object."""
    path = folder / "logits"
    path.write_bytes(logits.astype(np.float32).tobytes())
    request = {"file": str(path), "vocabulary": logits.shape[1], "draws": draws}
    done = subprocess.run(
        [build / "tests" / "sampling_lab"], input=json.dumps(request), capture_output=True, text=True, check=True
    )
    found: list[Any] = json.loads(done.stdout)
    return found


def reference(row: np.ndarray, draw: dict[str, Any]) -> int:
    return choose_token(row, **{**draw, "top_k": draw["top_k"] or None})


def random_logits(numbers: np.random.Generator, rows: int, vocabulary: int) -> np.ndarray:
    """Random logits. In one row of two many tokens share a few values; in one of three some tokens are forbidden."""
    logits = (numbers.standard_normal((rows, vocabulary)) * numbers.choice([0.1, 1, 10], (rows, 1))).astype(np.float32)
    tied = numbers.random(rows) < 0.5
    logits[tied] = np.round(logits[tied])
    forbidden = (numbers.random((rows, vocabulary)) < numbers.choice([0.1, 0.9], (rows, 1))) & (
        numbers.random((rows, 1)) < 1 / 3
    )
    forbidden[:, 7] = False
    logits[forbidden] = -np.inf
    return logits


def random_draw(numbers: np.random.Generator, vocabulary: int) -> dict[str, Any]:
    return {
        "temperature": float(numbers.choice([0.0, 1e-3, 0.3, 1.0, 1.7, 50.0])),
        "top_p": float(numbers.choice([1.0, 0.999, 0.9, 0.5, 1e-6])),
        "top_k": int(numbers.choice([0, 1, 2, 40, vocabulary - 1, vocabulary, vocabulary + 1, 2**40])),
        "seed": int(numbers.integers(2**64, dtype=np.uint64)),
        "position": int(numbers.integers(2**32)),
    }


@pytest.mark.parametrize("vocabulary", [SMALL, LARGE])
def test_the_core_chooses_the_tokens_of_the_reference(native_build: Path, tmp_path: Path, vocabulary: int) -> None:
    seed, rows = new_seed(), count(DRAWS[vocabulary])
    numbers = np.random.default_rng(seed)
    logits = random_logits(numbers, rows, vocabulary)
    draws = [random_draw(numbers, vocabulary) for _ in range(rows)]
    ours = core(native_build, tmp_path, logits, draws)
    expected = [reference(row, draw) for row, draw in zip(logits, draws, strict=True)]
    different = [(at, draws[at]) for at in range(rows) if ours[at] != expected[at]]
    assert not different, f"{len(different)} of {rows}: {different[:3]}"
    assert len(set(ours)) > (rows if vocabulary == LARGE else vocabulary) / 2
    check = f"tokens that the core and the reference choose alike, of {vocabulary:,}"
    record_check(check, {"draws": rows, "different": 0}, seed)


def test_the_largest_logit_may_be_anywhere(native_build: Path, tmp_path: Path) -> None:
    """Also where all others are forbidden."""
    logits = np.full((5, 5), -np.inf, np.float32)
    np.fill_diagonal(logits, 3.0)
    for temperature in (0.0, 1.0):
        draws = [{**GREEDY, "temperature": temperature}] * 5
        assert core(native_build, tmp_path, logits, draws) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("values", [[np.nan, 1, 2], [1, 2, np.nan], [1, np.inf, 2], [-np.inf] * 3])
def test_logits_without_a_finite_largest_are_refused_as_by_the_reference(
    native_build: Path, tmp_path: Path, values: list[float]
) -> None:
    row = np.array(values, np.float32)
    with pytest.raises(GenerationError) as caught:
        choose_token(row, temperature=0.0)
    (ours,) = core(native_build, tmp_path, row[None], [GREEDY])
    assert (ours["kind"], ours["subject"], ours["expected"]) == ("GenerationError", "logits", caught.value.expected)
    assert ours["got"].split(" at ")[1] == caught.value.got.split(" at ")[1]


@pytest.mark.parametrize(("setting", "value"), [("temperature", -0.5), ("top_p", 0.0), ("top_p", 1.5), ("top_k", -1)])
def test_settings_out_of_range_are_refused_as_by_the_reference(
    native_build: Path, tmp_path: Path, setting: str, value: float
) -> None:
    row = np.zeros(3, np.float32)
    with pytest.raises(GenerationError) as caught:
        choose_token(row, **{"temperature": 1.0, setting: value})  # type: ignore[arg-type]
    (ours,) = core(native_build, tmp_path, row[None], [{**GREEDY, setting: value}])
    assert (ours["kind"], ours["subject"]) == ("GenerationError", setting)
    assert caught.value.subject == setting
