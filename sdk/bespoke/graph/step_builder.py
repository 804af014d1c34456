# SPDX-License-Identifier: Apache-2.0
"""The builder as a method sees it. `PlanBuilder` records a step into a plan; `DirectBuilder` computes it at once.

The first paragraph of each docstring is a row of the table in docs/how_to/write_an_optimizer.md (tools/builder_table.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from bespoke.graph.value import Batch, Value
from bespoke.plan.instructions import DType, SectionName

if TYPE_CHECKING:
    from bespoke.config import Training

__all__ = ["Choice", "StepBuilder"]

Choice = TypeVar("Choice", int, str, bool)


class StepBuilder(Protocol):
    """What a training step is written with. Values have shapes and dtypes; a method never sees their numbers."""

    # ---- what exists before the step ---------------------------------------------------------------------------------

    @property
    def training(self) -> Training:
        """The settings of the run."""

    @property
    def section(self) -> SectionName:
        """The section that is being written."""

    @property
    def batch_size(self) -> int:
        """`B`, the sequences of a batch."""

    @property
    def sequence_length(self) -> int:
        """`T`, the tokens of a sequence."""

    def batch(self, copies: int = 1) -> Batch:
        """`tokens`, `targets` (int64) and `mask` (float32), each `(B, T)`. With `copies` the batch stands that many times below
        itself, `(copies * B, T)`."""

    def array(self, name: str, dtype: Literal["int64", "float32"]) -> Value:
        """Another tensor `(B, T)` that comes with the batch: `"int64"` for tokens, `"float32"` for numbers, 0 where a row has
        nothing.

        Rows of training data must hold it. Only the training step may read it.
        """

    def weights(self, group: str) -> dict[str, Any]:
        """Frozen tensors of a group, name -> value. A quantized one is a pair that `.rows(a, b)` cuts. A block also gives A,
        `q_proj.lora_A` and so on, where `Lora(train="B")` trains B alone."""

    def adapter(self, group: str) -> dict[str, Value]:
        """What is trained, name -> value: `q_proj.lora_A` `(rank, in)` and so on, of the linears that `Lora(targets=...)`
        chooses."""

    def state(self, like: Value, name: str, shape: Sequence[int] | None = None) -> Value:
        """Optimizer state, float32, kept with a piece of the adapter, of its shape or of `shape` (`()`: one number); zero when
        a run starts. One name of a piece is one state; it has letters, digits and `_`, and is not `gradient`.

        `shape`: up to 8 extents of 1 or more.
        """

    def scalar(self, name: str) -> Value:
        """`learning_rate`, `step` (from 1), `batch_tokens` (unmasked tokens of the whole step), `epsilon`, `position`,
        `direction` and `coefficient` (of federated learning), or an option declared as `Scalar`."""

    def constant(self, number: int) -> Value:
        """An integer as an input of a graph. A Python number would be compiled in, one graph for each."""

    # ---- what a step computes ----------------------------------------------------------------------------------------

    def call(
        self, function: Callable[..., Any], *trees: Any, into: Any = None, add_to: Any = None, **static: Hashable
    ) -> Any:
        """Calls `function(*trees, **static)` and returns the tree of its results. `into` and `add_to` name values that results
        fill or are added to, in the form of the result.

        Each may hold some of the results. Functions see tensors of the values' shapes and dtypes.
        """

    def zeros(self, shape: Sequence[int], dtype: DType = "float32") -> Value:
        """A value of zeros to fill by rows (`into`) or to add to (`add_to`)."""

    def accumulator(self, like: Value) -> Value:
        """A sum over the micro-batches of a step, zero when the step begins. `update` uses it for you."""

    def choose(self, name: str, candidates: Sequence[Choice]) -> Choice:
        """One of the candidates, listed from least memory to fastest. The planner decides by the budget."""

    def keep(self, *trees: Any) -> None:
        """Makes these values wait in memory: what is kept to save time is not written to a file where memory is short.

        Other values that wait for the backward pass may go to the scratch file: right for what cannot be computed again.
        """

    def noise(self, tree: Any, query: int | Value = 0, distribution: Literal["normal", "rademacher"] = "normal") -> Any:
        """Random numbers in the shape of adapter pieces or states. The same arguments give the same numbers.

        So noise is never kept. `query` may be the scalar `direction` in the sections of federated learning.
        """

    def signs(self, count: int, query: Value) -> Value:
        """`count` random numbers of -1 or 1, `(count,)`, by the scalar `query`: those of a direction that belong to no piece."""

    def receive(self, name: str, shape: Sequence[int], dtype: Literal["uint8", "float32"]) -> Value:
        """A tensor that a round of federated learning brings under a name; zeros where it brings none.

        Rank 1 or 2.
        """

    # ---- what a step leaves ------------------------------------------------------------------------------------------

    def record(self, value: Value) -> Value:
        """Keeps a small value in the journal and returns it as a value.

        What depends only on recorded values can be replayed from the journal.
        """

    def send(self, value: Value) -> None:
        """Gives out a small value: the only part of a federated measurement that leaves the device.

        Up to 4 KB, once, in `federated_measure` or `federated_project`.
        """

    def store(self, states: Any, values: Any) -> None:
        """Gives pieces of adapter or state their content from the next step on. Reads within the step see the old one."""

    def emit(self, **metrics: Value) -> None:
        """Reports values as metrics, such as `loss`."""

    def begin_section(self, name: SectionName) -> None:
        """Begins another section: `apply_step` after the micro-steps, `finish` at the end of a run, `federated_measure` and those
        after it. `update` and `trail` do it for you."""
