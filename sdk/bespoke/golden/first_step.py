# SPDX-License-Identifier: Apache-2.0
"""The first step of a method that promises nothing, run at build by the torch interpreter.

No other code knows what such a method should compute. What a device is held to is that it runs the step and gets the same loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from bespoke.format.tensors import map_tensors
from bespoke.golden.document import Known, MethodGolden
from bespoke.golden.promises import GoldenMethod
from bespoke.golden.rates import rates
from bespoke.reference.buffers import Buffers
from bespoke.reference.code import plan_code
from bespoke.reference.interpreter import Bindings, Interpreter
from bespoke.reference.machine import tensors
from bespoke.reference.weights import Weights
from bespoke.rules.batches import TokenBatch

TOLERANCE = 1e-3  # relative; how such a method rounds is not known


def first_step(
    m: GoldenMethod,
    files: Mapping[str, Path],
    adapter: Mapping[str, np.ndarray],
    batch: TokenBatch,
    seed: int,
    trained: list[str],
) -> MethodGolden:
    """Loss of its first step on `batch`, of the shape that its first plan takes; nothing where that is no finite number."""
    (rate,) = rates(m.training, 1)
    loss = _loss(m, files, adapter, batch, rate, seed)
    known = [Known(value=loss, tolerance=max(TOLERANCE * abs(loss), TOLERANCE**2))] if math.isfinite(loss) else []
    return MethodGolden(
        name=m.name,
        learning_rates=[rate] if known else [],
        micro_batches=1,
        losses=known,
        recorded=[],
        trained=trained,
        gradient=None,
        moved=[],
    )


def _loss(
    m: GoldenMethod,
    files: Mapping[str, Path],
    adapter: Mapping[str, np.ndarray],
    batch: TokenBatch,
    rate: float,
    seed: int,
) -> float:
    plan = m.plans[0]
    code, device = plan_code(plan), torch.device("cpu")
    buffers = Buffers([code], device)
    buffers.fill(adapter)
    interpreter = Interpreter(
        code,
        [m.functions[graph.key] for graph in plan.graphs],
        Weights(lambda group: map_tensors(files[group]), device),
        buffers,
        device,
    )
    scalars = {**m.scalars, "learning_rate": rate, "step": 1.0, "batch_tokens": float(batch.tokens_trained)}
    buffers.begin_step()
    metrics: dict[str, float] = {}
    if m.training.accumulates:
        metrics |= interpreter.run("micro_step", Bindings(tensors(batch), scalars, seed, 1)).metrics
        metrics |= interpreter.run("apply_step", Bindings({}, scalars, seed, 1)).metrics
    else:
        metrics |= interpreter.run("train_step", Bindings(tensors(batch), scalars, seed, 1)).metrics
    return float(metrics.get("loss", math.nan))
