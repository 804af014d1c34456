# SPDX-License-Identifier: Apache-2.0
"""The number of steps of a run whose settings name none: as many as read each row of the user's EPOCHS times.

A run on few rows has LEAST_STEPS, since an adapter needs steps to grow at all. A run on many has at most MOST_STEPS; the best step
ends it earlier where held-out rows show no further gain. bindings/native/src/train/run_length.h has the same rule.
"""

from __future__ import annotations

import math

from bespoke.config import Training

__all__ = ["EPOCHS", "LEAST_STEPS", "MOST_STEPS", "run_length", "shortest_run"]

EPOCHS = 6
LEAST_STEPS = 300
MOST_STEPS = 5000


def run_length(training: Training, user_rows: int, general_rows: int) -> int:
    """Steps of a run with these settings on `user_rows` of the user's and `general_rows` of the bundle's own."""
    if training.steps is not None:
        return training.steps
    share = training.general_share if general_rows else 0.0
    if share >= 1:
        return LEAST_STEPS  # no row of the user's is read
    rows_a_step = training.batch_size * training.accumulation * (1 - share)
    return min(max(math.ceil(EPOCHS * user_rows / rows_a_step), LEAST_STEPS), MOST_STEPS)


def shortest_run(training: Training) -> int:
    """Steps of the shortest run with these settings."""
    return training.steps or LEAST_STEPS
