# SPDX-License-Identifier: Apache-2.0
"""The pool of threads has as many as steps use: it shrinks once a number is chosen, and grows where numbers are tried again."""

from __future__ import annotations

import json
import subprocess
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from bespoke import Lora, Personalizer, Training
from tests.support.bundles import made_once
from tests.support.models import tiny_model

TRIAL = 6  # steps: 2, 4 and all threads, two of each
SLOW = 3  # steps in a row until numbers are tried again


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(place: Path) -> None:
        model = tiny_model("llama", place / "model")
        training = Training(sequence_lengths=(8, 16), batch_size=1)
        Personalizer(model, "mesp", "executorch", context=32, lora=Lora(rank=4), training=training, data=None).build(
            place / "bundle"
        )

    return made_once(tmp_path_factory, "thread-pool", make) / "bundle"


def lab(build: Path, bundle: Path, scratch: Path, steps: list[tuple[int, int]], **request: Any) -> list[dict[str, Any]]:
    """Steps of (sequence length, number of threads with which they are not slow; 0: any)."""
    scratch.mkdir()
    asked = {
        "bundle": str(bundle),
        "method": "mesp",
        "scratch": str(scratch / "scratch"),
        "threads": 5,
        "answers": False,
        "steps": [{"length": length, "favourite": favourite} for length, favourite in steps],
    }
    done = subprocess.run(
        [build / "tests" / "threads_lab"],
        input=json.dumps({**asked, **request}),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def runs_of(numbers: list[int]) -> list[tuple[int, int]]:
    """(number, how often in a row)."""
    return [(number, len(list(group))) for number, group in groupby(numbers)]


def test_the_pool_shrinks_to_the_chosen_number_and_grows_when_numbers_are_tried_again(
    native_build: Path, bundle: Path, tmp_path: Path
) -> None:
    lengths = [(8, 2), (16, 2)]
    cold = TRIAL * lengths + lengths
    hot = (SLOW + TRIAL + 1) * [(8, 4)]
    found = lab(native_build, bundle, tmp_path / "a", cold + hot)
    pools = [one["pool"] for one in found]
    tried = 2 * TRIAL - 1  # the pool shrinks after the last step of both lengths' trials
    chosen = len(cold) - tried + SLOW - 1
    assert runs_of(pools) == [(5, tried), (2, chosen), (5, TRIAL), (4, 2)]
    assert [one["used"] for one in found][-1] == 4
    programs = found[1]["opened"]  # of both lengths
    assert [one["opened"] for one in found if one["pool"] != 5][-1] == 4 * programs  # once, and once for each change
    alone = lab(native_build, bundle, tmp_path / "b", [(length, 0) for length, _ in cold + hot], threads=1)
    assert {one["pool"] for one in alone} == {1}
    assert [one["adapter"] for one in found] == [one["adapter"] for one in alone]


def test_the_pool_stays_while_other_programs_are_open(native_build: Path, bundle: Path, tmp_path: Path) -> None:
    steps = [(8, 2)] * TRIAL + [(16, 2)] * TRIAL
    found = lab(native_build, bundle, tmp_path / "a", steps, answers=True)
    assert {one["pool"] for one in found} == {5}
    assert found[-1]["used"] == 2
