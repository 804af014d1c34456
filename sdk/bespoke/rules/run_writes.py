# SPDX-License-Identifier: Apache-2.0
"""What a run writes to the files of a state, at most: flash wears. The rule is that of bindings/native/src/train/run_writes.h."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from bespoke.config import MEGABYTE, Training

__all__ = ["most_written", "tensor_file_bytes"]

JUDGEMENTS = 10  # of a run, at most: each may be the best so far, whose adapter is kept
SLOT_EVERY = 200  # steps, of a method with a journal
_ALIGNMENT = 64


def tensor_file_bytes(shapes: Mapping[str, Sequence[int]]) -> int:
    """Size of a file of float32 tensors, as a state has them (docs/reference/state_format.md)."""
    entries, offset = {}, 0
    for name in sorted(shapes):
        size = 4 * math.prod(shapes[name])
        entries[name] = {"dtype": "F32", "shape": list(shapes[name]), "data_offsets": [offset, offset + size]}
        offset += size
    header = 8 + len(json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode())
    return -(-header // _ALIGNMENT) * _ALIGNMENT + offset


def most_written(slot: int, adapter: int, training: Training, *, replayable: bool) -> int:
    """Bytes of a run of `training.steps` steps that no call breaks off, by the sizes of its slots and of the adapter.

    Each call that ends before the run writes a slot more, or a few bytes a step for a method with a journal.
    """
    adapters = adapter * (JUDGEMENTS + 1)  # those of the best steps, and the accepted one
    if replayable:
        return adapters + slot * (training.steps // SLOT_EVERY)
    whole = adapters + slot * training.steps
    if training.write_mb_per_run is None:
        return whole
    return min(whole, max(adapters + slot, int(training.write_mb_per_run * MEGABYTE)))
