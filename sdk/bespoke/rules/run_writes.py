# SPDX-License-Identifier: Apache-2.0
"""The most bytes that a run writes to a state's files, since flash wears.

bindings/native/src/train/run_writes.h has the same rule.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from bespoke.config import MEGABYTE, Training
from bespoke.rules.run_length import shortest_run

__all__ = ["most_written", "tensor_file_bytes"]

JUDGEMENTS = 10  # most judgements of a run. Each may be the best so far, and then its adapter is written.
CUTS = 3  # most times that the gate keeps less of the adapter, and writes it
SLOT_EVERY = 200  # steps between the slots of a method with a journal
_ALIGNMENT = 64


def tensor_file_bytes(shapes: Mapping[str, Sequence[int]]) -> int:
    """The size of a file of float32 tensors in a state (docs/reference/state_format.md)."""
    entries, offset = {}, 0
    for name in sorted(shapes):
        size = 4 * math.prod(shapes[name])
        entries[name] = {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": [offset, offset + size]}
        offset += size
    header = 8 + len(json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode())
    return -(-header // _ALIGNMENT) * _ALIGNMENT + offset


def most_written(slot: int, adapter: int, training: Training, *, replayable: bool) -> int:
    """The most bytes that a run with these settings writes in a single call; of the shortest, if they name no steps.

    `slot` and `adapter` are the sizes of these files. Each further call of a run writes one more slot, or a few bytes a step for a
    method with a journal.
    """
    steps = shortest_run(training)
    # Those of the best steps, those of which less was kept, and the accepted one.
    adapters = adapter * (JUDGEMENTS + CUTS + 1)
    if replayable:
        return adapters + slot * (steps // SLOT_EVERY)
    whole = adapters + slot * steps
    if training.write_mb_per_run is None:
        return whole
    return min(whole, max(adapters + slot, int(training.write_mb_per_run * MEGABYTE)))
