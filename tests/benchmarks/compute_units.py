# SPDX-License-Identifier: Apache-2.0
"""What a step of a method computes, in passes of one row: forward 1, backward 2, computed again 1.

Counted by the plan: its train_step is straight-line, so one run of it calls every product that every run does. The products with
the model's quantized weights are weighed by their multiplications: those of `linear_int4` are forward or computed again, those of
`linear_int4_transposed` are a backward. One row's forward pass is what the plan's own evaluate_step takes for it. Frozen weights
need no gradient, so their backward costs as much as a forward; it counts 2 all the same, as is usual. The head, attention and
LoRA's own products go along with them and are not weighed. A row is a whole row of the batch, padding too.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from bespoke.bundle.reader import Bundle
from bespoke.ops.operators import OPERATORS, CallSizes
from bespoke.reference.machine import Machine
from bespoke.rules.batches import BatchCursor, CursorState, RowLike

__all__ = ["step_units"]

FORWARD, BACKWARD = "linear_int4", "linear_int4_transposed"


class _Products(TorchDispatchMode):
    """Multiplications of each operator of ours that is called within."""

    def __init__(self) -> None:
        super().__init__()
        self.flops: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        namespace, _, name = function._schema.name.partition("::")
        if namespace == "bespoke" and name in (FORWARD, BACKWARD):
            self.flops[name] += OPERATORS[name].flops(
                CallSizes(tuple(args[0].shape), tuple(args[1].shape), args[-1], 0)
            )
        return function(*args, **(kwargs or {}))


def step_units(bundle: Bundle, method: str, row: RowLike) -> float:
    """Passes of one row in a step, micro-batches and queries included."""
    record = bundle.method(method)
    machine, settings = Machine(bundle, record), record.training
    machine.buffers.fill(bundle.initial_adapter())
    cursor = BatchCursor(
        [row],
        [],
        seed=0,
        batch_size=settings.batch_size,
        accumulation=settings.accumulation,
        sequence_lengths=machine.sequence_lengths,
        general_share=0.0,
    )
    batches, _ = cursor.step(CursorState())
    with _Products() as step:
        machine.train_step(batches, learning_rate=0.0, step=1, seed=0)
    with _Products() as forward:
        machine.evaluate_batch(batches[0])
    return (step.flops[FORWARD] + 2 * step.flops[BACKWARD]) / (forward.flops[FORWARD] / settings.batch_size)
