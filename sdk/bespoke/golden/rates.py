# SPDX-License-Identifier: Apache-2.0
"""Learning rates of the steps that golden vectors hold."""

from __future__ import annotations

from bespoke.config import Training
from bespoke.rules.run_length import shortest_run
from bespoke.rules.schedule import learning_rate_at

__all__ = ["STEPS", "rates"]

STEPS = 3


def rates(training: Training, steps: int = STEPS) -> list[float]:
    """Learning rates of the first steps of a whole run."""
    return [
        learning_rate_at(
            step,
            peak=training.learning_rate,
            schedule=training.schedule,
            warmup_steps=training.warmup_steps,
            total_steps=shortest_run(training),
        )
        for step in range(1, steps + 1)
    ]
