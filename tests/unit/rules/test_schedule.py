# SPDX-License-Identifier: Apache-2.0
"""Learning rates against transformers' schedules, read off a real optimizer."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from bespoke.errors import ConfigError
from bespoke.rules.schedule import learning_rate_at

PEAK = 3e-4


def theirs(schedule: str, warmup: int, total: int, steps: int) -> list[float]:
    """lambda(0), lambda(1), .. of transformers, times the peak."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    name = "constant_with_warmup" if schedule == "constant" else schedule
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch wants optimizer.step() before scheduler.step()
        scheduler = transformers.get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=total)
        rates = []
        for _ in range(steps):
            rates.append(float(scheduler.get_last_lr()[0]))
            scheduler.step()
    return rates


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize(("warmup", "total"), [(0, 20), (5, 20), (1, 7), (20, 20), (0, 1)])
def test_rates_are_those_of_transformers(schedule: Any, warmup: int, total: int) -> None:
    steps = range(1, total + 1)
    expected = theirs(schedule, warmup, total, total + 1)
    settings: dict[str, Any] = {"peak": PEAK, "schedule": schedule, "warmup_steps": warmup, "total_steps": total}
    for step in steps:
        # Warm-up is one step ahead of theirs, which starts with a step of rate 0; at W both have the peak.
        lambda_of = step if step <= warmup else step - 1
        if step == warmup == total:
            assert learning_rate_at(step, **settings) == PEAK
            continue
        assert learning_rate_at(step, **settings) == pytest.approx(expected[lambda_of], rel=1e-12, abs=1e-18)


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_no_step_of_a_run_is_wasted(schedule: Any) -> None:
    rates = [
        learning_rate_at(step, peak=PEAK, schedule=schedule, warmup_steps=4, total_steps=12) for step in range(1, 13)
    ]
    assert rates[0] == PEAK / 4
    assert rates[3] == rates[4] == PEAK
    assert min(rates) > 0


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_decay_stays_at_zero_after_its_end(schedule: Any) -> None:
    for step in (13, 14, 100):
        assert learning_rate_at(step, peak=PEAK, schedule=schedule, warmup_steps=4, total_steps=12) == 0


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ConfigError, match="from 1"):
        learning_rate_at(0, peak=PEAK, schedule="constant", warmup_steps=0, total_steps=1)
    with pytest.raises(ConfigError, match="polynomial"):
        learning_rate_at(1, peak=PEAK, schedule="polynomial", warmup_steps=0, total_steps=1)  # type: ignore[arg-type]
