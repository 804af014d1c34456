# SPDX-License-Identifier: Apache-2.0
"""Everything at once on one state folder: two trainers, adding, forgetting, exporting, importing, asking, resetting, another base,
the page, forks and threads; processes are killed at any instant. Nothing acknowledged is lost, nothing forgotten comes back,
and nothing is left of it. Thirty minutes in `make test-all`, seconds in `make test`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kill.conftest import new_place
from tests.stress.bundles import two_bundles
from tests.stress.stress import Stress
from tests.support.checks import full, new_seed, record_check

__all__ = ["two_bundles"]

SECONDS, KILL_SECONDS, CHECK_SECONDS = (1800.0, 1.0, 30.0) if full() else (9.0, 0.6, 4.5)
KILLS, BROKEN_OFF = (700, 8) if full() else (5, 1)
SHOWN = ("add", "forget", "train", "generate", "export", "import", "rollback", "reset", "new base", "open")


@pytest.fixture
def place() -> Iterator[Path]:
    with new_place() as folder:
        yield folder


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_and_nothing_forgotten_is_left(
    two_bundles: Path, place: Path, tmp_path: Path
) -> None:
    seed = new_seed()
    with Stress(two_bundles, place, tmp_path / "journals", seed, BROKEN_OFF) as stress:
        done = stress.run(SECONDS, KILL_SECONDS, CHECK_SECONDS)
    tried, told = Counter(one.op for one in done), sum(one.acknowledged for one in done)
    shared = sum(bool(one.intent.keys() & {"fork", "threads"}) for one in done)
    kills = stress.kills.total()
    assert kills >= KILLS
    assert shared >= len(done) / 10
    assert {one.op for one in done if one.acknowledged} >= {*SHOWN[: len(SHOWN) if full() else 2]}
    record_check(
        "everything at once on one state, with kills",
        {
            "seconds": int(SECONDS),
            "kills": kills,
            "of them of the core's processes": stress.kills["core"],
            "operations": len(done),
            **{op: tried[op] for op in SHOWN},
            "over fork and threads": shared,
            "acknowledged": told,
            "lost": 0,
            "forgotten back": 0,
            "left of what was forgotten": 0,
        },
        seed,
    )
