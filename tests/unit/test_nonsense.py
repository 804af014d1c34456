# SPDX-License-Identifier: Apache-2.0
"""The gate of a bundle that was given no data refuses nonsense and accepts people's words, with the general set of the build's own.

With the whole count also from an accepted adapter, on the device core. tests/benchmarks/test_gate.py does it for five models.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.support.checks import count, full, new_seed, record_check
from tests.support.nonsense import build, verdicts

SEEDS = 50
FROM_THE_BASE = 2  # verdicts: on words, and on shuffled letters


@pytest.mark.slow
def test_nonsense_is_refused_and_words_are_accepted(stories: Path, data_folder: Path, tmp_path: Path) -> None:
    first = new_seed()
    bundle = build(stories, tmp_path / "bundle", "executorch" if full() else "torch")
    refused: list[bool] = []
    accepted: list[bool] = []
    for seed in range(first, first + count(SEEDS)):
        found = verdicts(bundle, data_folder, tmp_path / "states", seed)
        for one in found if full() else itertools.islice(found, FROM_THE_BASE):
            print(one)
            if one.words == "sense":
                accepted.append(one.accepted)
            else:
                assert one.user[1] < one.user[0]  # type: ignore[operator]  # learned, so that only the general set can tell
                refused.append(not one.accepted)
    record_check(
        "gate without data", {"runs on nonsense": len(refused), "runs on people's words": len(accepted)}, first
    )
    assert sum(refused) >= 0.95 * len(refused)
    assert sum(accepted) >= 0.9 * len(accepted)
