# SPDX-License-Identifier: Apache-2.0
"""The learning rate of each step: constant, linear decay or cosine, each after a linear warm-up.

With steps counted from 1, W = warm-up steps and N = steps of the run, step n uses

    n <= W:   peak * n / W
    constant: peak
    linear:   peak * max(0, (N - (n - 1)) / max(1, N - W))
    cosine:   peak * (1 + cos(pi * min(1, (n - 1 - W) / max(1, N - W)))) / 2

These are transformers' `get_*_schedule_with_warmup`, whose lambda(i) counts from 0. Decay uses lambda(n - 1) as they do,
and warm-up uses lambda(n). In transformers, warm-up starts at lambda(0) = 0, a step that changes nothing. Here no step of
a run has rate 0. The first step has peak / W, steps W and W + 1 have the peak, and the last step of a linear decay has
peak / (N - W).
"""

from __future__ import annotations

import math

from bespoke.config import Schedule
from bespoke.errors import ConfigError
from bespoke.remedies import setting

__all__ = ["learning_rate_at"]


def learning_rate_at(step: int, *, peak: float, schedule: Schedule, warmup_steps: int, total_steps: int) -> float:
    """The learning rate of `step`, counted from 1, in a run of `total_steps`. It is 0 after the end of a decay.

    Raises ConfigError for a step below 1 or an unknown schedule.
    """
    if step < 1:
        raise ConfigError("step", got=str(step), expected="1 or more", next_step="Count the steps of a run from 1")
    if step <= warmup_steps:
        return peak * step / warmup_steps
    progress = (step - 1 - warmup_steps) / max(1, total_steps - warmup_steps)
    if schedule == "constant":
        return peak
    if schedule == "linear":
        return peak * max(0.0, 1.0 - progress)
    if schedule == "cosine":
        return peak * 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    raise ConfigError(
        setting("training.schedule"),
        got=repr(schedule),
        expected="'constant', 'linear' or 'cosine'",
        next_step="Name one of these three",
    )
