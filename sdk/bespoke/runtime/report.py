# SPDX-License-Identifier: Apache-2.0
"""What training and evaluation report, and in which units."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

RuntimeName = Literal["core", "torch"]
StoppedBecause = Literal["finished", "steps_done", "stop_requested", "example_forgotten", "diverged"]


@dataclass(frozen=True)
class Evaluation:
    """Means over the unmasked tokens of some examples."""

    loss: float  # nats per token
    perplexity: float
    accuracy: float  # share of tokens that the most likely next token predicts
    tokens: int
    examples: int
    runtime: RuntimeName = "torch"


@dataclass(frozen=True)
class MemoryReport:
    """Bytes. `peak_bytes` is what training took in anonymous memory: on the core all of the process, on torch what came on top of
    the idle process. The others are not in it."""

    idle_bytes: int
    estimate_bytes: int
    peak_bytes: int
    limit_bytes: int | None
    mapped_dirty_bytes: int
    file_bytes: int
    enforced_by: str = "none"  # what of the system would have ended the process beyond the limit: cgroup2, cgroup1, rlimit_data


@dataclass(frozen=True)
class TrainReport:
    """What a call of `train` did."""

    method: str
    run: int
    steps: int
    total_steps: int
    tokens: int
    losses: tuple[float, ...]
    rejected_steps: int
    validation_loss_before: float | None
    validation_loss: float | None
    general_loss_before: float | None
    general_loss: float | None
    judged_on: Literal["validation", "train"] | None
    accepted: bool
    stopped_because: StoppedBecause
    memory: MemoryReport
    step_peak_bytes: tuple[int, ...]  # of each step, over the idle process; an abandoned last one included
    bytes_written: int
    seconds: float
    runtime: RuntimeName = "torch"
    bytes_read: int = 0  # from storage: what was not in the page cache
    step_seconds: tuple[float, ...] = ()
    seconds_by_stage: dict[str, float] = field(default_factory=dict)  # calls of the steps: forward, head, backward, update
    # Bytes at each step's peak: anonymous, shmem, swap, file. Of the core alone.
    memory_columns: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def peak_bytes(self) -> int:
        return self.memory.peak_bytes

    def as_dict(self) -> dict[str, Any]:
        """JSON-able; what `bespoke train --format json` prints."""
        return {**asdict(self), "peak_bytes": self.peak_bytes}
