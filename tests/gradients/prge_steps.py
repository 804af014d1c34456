# SPDX-License-Identifier: Apache-2.0
"""P-RGE's settings in these tests, and a machine that runs its plan."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from bespoke.config import Training
from bespoke.graph.trace import Tracer
from tests.gradients.harness import Base, Rig, Tiles, rig

RANK, SEED, EPSILON, RATE = 3, 5, 1e-2, 1e-3
LENGTH, ROWS = 7, 2
STEPS = pytest.mark.parametrize("steps", [10, pytest.param(100, marks=pytest.mark.slow)])
MODES = [dict(zip(("outer", "inner"), both, strict=True)) for both in product((False, True), repeat=2)]

# Both numbers of queries that the papers' settings have, and both distributions.
SETTINGS = list(product((1, 4), ("normal", "rademacher")))


def planned(base: Base, tracer: Tracer, adapter: Any, method: Any, tiles: Tiles | None = None, **options: Any) -> Rig:
    machine = rig(
        base,
        method,
        LENGTH,
        RANK,
        tracer,
        training=Training(batch_size=ROWS),
        options={"epsilon": EPSILON, **options},
        adapter=adapter,
        tiles=tiles,
    )
    machine.buffers.fill(adapter)
    return machine
