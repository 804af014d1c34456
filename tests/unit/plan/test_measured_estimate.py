# SPDX-License-Identifier: Apache-2.0
"""What the plan says training will take, against what a fresh process was seen to take. `make bench` has the other cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from bespoke.system.footprint import can_measure
from tests.benchmarks.qwen import train
from tests.support.bundles import stories_bundle
from tests.support.estimate_bounds import OR_BYTES, SHARE

__all__ = ["stories_bundle"]

pytestmark = [
    pytest.mark.xdist_group("stories_bundle"),
    pytest.mark.skipif(not can_measure(), reason="the system does not tell a process its anonymous memory"),
]


@pytest.mark.slow
def test_training_takes_what_the_plan_says(stories_bundle: Path, tmp_path: Path) -> None:
    run = train(stories_bundle, tmp_path / "state", length=32, steps=3, batch_size=2)
    estimate, added = run.report["memory"]["estimate_bytes"], run.added()
    assert abs(added - estimate) <= max(SHARE * added, OR_BYTES), (
        f"estimate {estimate / 1e6:.1f} MB, measured {added / 1e6:.1f} MB"
    )
    # Our own figure leaves out opening the bundle, and reads at the end of each step what the watcher reads every millisecond.
    assert abs(added - run.report["memory"]["peak_bytes"]) < 6_000_000
