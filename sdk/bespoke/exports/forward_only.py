# SPDX-License-Identifier: Apache-2.0
"""A training step as a torch module with mutable state, for apps that have an inference engine and no device core.

The method's update must trail by one call (P-RGE, arXiv 2409.15520, Algorithm 2; bespoke.methods.trailing). Both signs of each
query are buffers of the module. The caller hands the projected gradients that a call returned and their learning rate to the next.
After the last call, `finished` makes the update that is still missing.

Base weights are constants of the module, in int4 as in the bundle. ATen's operators decode them where they are used, so any engine
that compiles torch modules can run the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch

from bespoke import plugins
from bespoke.bundle.plan_records import MethodRecord
from bespoke.bundle.reader import Bundle
from bespoke.config import Settings
from bespoke.errors import ConfigError
from bespoke.exports.noise_in_graph import noise_in_graph
from bespoke.graph.direct import Cell, DirectBuilder
from bespoke.methods.head import head_chunk
from bespoke.methods.trailing import number_of_last_step
from bespoke.model.spec import ModelSpec
from bespoke.ops.int4 import GROUP
from bespoke.ops.weight import QuantizedWeight
from bespoke.plan.instructions import Named
from bespoke.plan.kinds import ADAPTER_GROUP, BATCH
from bespoke.plan.read import read_plan

__all__ = ["DECOMPOSITIONS", "ForwardOnly"]

NoiseFrom = Literal["counter", "input"]


class ForwardOnly(torch.nn.Module):
    """The step of a bundle's method at its longest sequence length.

    forward(tokens, targets, mask, g, rate, begun, seed, step) -> loss (), g (queries)
        tokens, targets: int64 (B, T)
        mask:            float32 (B, T), 1 where the target counts
        g:               float32 (queries), the result of the call before; zeros in the first call
        rate:            float32 (1), the learning rate of the step that computed this g
        begun:           float32 (1), 0 in the first call, which ignores the buffers, and 1 in all others
        seed:            int64 (1), the seed of the run
        step:            int64 (1), the number of this call, from 1

    With noise="input", z float32 (queries, `trained`) takes the place of seed and step, for engines that cannot multiply, shift or
    XOR int64. The graph then uses integers in two ways only: it looks up, compares, adds and subtracts int64 tokens, targets and
    positions, and it unpacks int4 codes by bitwise operators on uint8.

    Raises ConfigError if the method's update does not trail, or if its step reads something that no caller gives it.
    """

    def __init__(self, bundle: Bundle, method: str | None = None, *, noise: NoiseFrom = "counter") -> None:
        super().__init__()
        record = bundle.method(method)
        self.noise: NoiseFrom = noise
        self.model = ModelSpec(bundle.manifest.model.config, bundle.manifest.lora.settings)
        self.training = record.training
        self.length = max(record.training.sequence_lengths)
        _check(record, bundle, self.length)

        self.optimizer = plugins.get("optimizer", record.name)
        self.options: Settings = self.optimizer.Options(**record.options)
        self.numbers = dict(record.scalars)
        initial = {name: torch.from_numpy(array.copy()) for name, array in bundle.initial_adapter().items()}
        self.pieces = [name for name in initial if self.model.lora.trains(name)]

        self._weights: dict[str, dict[str, str]] = {}  # group -> tensor -> name of its buffer
        for group in (record.group for record in bundle.manifest.weights if record.group != ADAPTER_GROUP):
            for name, array in bundle.weights(group).items():
                self._keep(group, name, torch.from_numpy(array.copy()))
        for name, piece in initial.items():
            group, tensor = name.split(".", 1)
            self._keep(group, tensor, piece)

        self.states: dict[str, str] = {}  # name of a state -> name of its buffer
        self.last: dict[str, int | Literal["rate"]] = {}  # states that the caller keeps: g of a query, or the rate
        self._starts = self._counters()
        self.queries = int(getattr(self.options, "queries", 0))
        self._find_states()

    def forward(
        self,
        tokens: torch.Tensor,
        targets: torch.Tensor,
        mask: torch.Tensor,
        g: torch.Tensor,
        rate: torch.Tensor,
        begun: torch.Tensor,
        *noise: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        b = self._stepped(tokens, targets, mask, g, rate, begun, noise)
        for name, buffer in self.states.items():
            getattr(self, buffer).copy_(b.stored[name])
        return b.metrics["loss"].reshape(()), torch.cat([number.reshape(1) for number in b.recorded])

    def example(self) -> tuple[torch.Tensor, ...]:
        """Operands of the right shapes and dtypes for `forward`."""
        shape = (self.training.batch_size, self.length)
        tokens = torch.zeros(shape, dtype=torch.int64)
        # Each operand is a tensor of its own: an exporter would take the same tensor twice for one operand.
        counter = (torch.ones(1, dtype=torch.int64), torch.ones(1, dtype=torch.int64))
        noise = (torch.zeros(self.queries, self.trained),) if self.noise == "input" else counter
        return (
            tokens,
            tokens.clone(),
            torch.ones(shape),
            torch.zeros(self.queries),
            torch.zeros(1),
            torch.zeros(1),
            *noise,
        )

    def methods(self) -> dict[str, tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]:
        """The modules "forward" and "finish" over the same buffers, each with operands to export it with.

        "finish" maps (g, rate) to the trained pieces in the order of `pieces`. It needs at least one call of "forward" before it.
        """
        operands = self.example()
        return {"forward": (_Method(self, "forward"), operands), "finish": (_Method(self, "finished"), operands[3:5])}

    @property
    def trained(self) -> int:
        """The number of trained elements of the adapter. Their noise is in the order of `pieces`, row by row."""
        return sum(self._tensor(name).numel() for name in self.pieces)

    def finished(self, g: torch.Tensor, rate: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The trained pieces, in the order of `pieces`, with the update that the next call would make.

        It also stores this update in the buffers. So a later call does not make it again, and an engine sees that both methods
        share one state.
        """
        tokens, targets, mask, _, _, _, *noise = self.example()
        finished = self._stepped(tokens, targets, mask, g, rate, None, tuple(noise)).finished
        for state, buffer in self.states.items():
            piece = state.rsplit(".", 1)[0]
            getattr(self, buffer).copy_(finished[piece] - self._tensor(piece))
        return tuple(finished[name] for name in self.pieces)

    # ---- the step ----------------------------------------------------------------------------------------------------------

    def _stepped(
        self,
        tokens: torch.Tensor,
        targets: torch.Tensor,
        mask: torch.Tensor,
        g: torch.Tensor,
        rate: torch.Tensor,
        begun: torch.Tensor | None,
        noise: tuple[torch.Tensor, ...],
    ) -> DirectBuilder:
        states: dict[str, torch.Tensor] = {name: getattr(self, buffer) for name, buffer in self.states.items()}
        if begun is not None:
            states = {name: torch.where(begun > 0.5, value, 0.0) for name, value in states.items()}
        states |= {name: (rate if which == "rate" else g[which]).reshape(()) for name, which in self.last.items()}

        b = DirectBuilder(
            self.model,
            self.training,
            tokens,
            targets,
            mask,
            group=self._group,
            adapter_tensors={name: self._tensor(name) for name in self.pieces},
            states=states,
            numbers={"batch_tokens": mask.sum(), "learning_rate": torch.zeros(()), **self._constants()},
            draw=self._draw(noise),
            widest=True,
        )
        self.optimizer.train_step(b, self.model, self.options)
        return b

    def _find_states(self) -> None:
        """Runs the step once to learn which states it stores."""
        tokens, targets, mask, g, rate, begun, *noise = self.example()
        b = self._stepped(tokens, targets, mask, g, rate, begun, tuple(noise))
        for name, value in b.stored.items():
            which = number_of_last_step(name)
            if which is not None:
                self.last[name] = which
            else:
                self.states[name] = buffer = f"state_{name.replace('.', '_').lower()}"
                self.register_buffer(buffer, torch.zeros_like(value))

    def _constants(self) -> dict[str, torch.Tensor]:
        return {name: torch.tensor(number, dtype=torch.float32) for name, number in self.numbers.items()}

    def _counters(self) -> dict[str, int]:
        """Where each piece's noise begins in the noise of all pieces.

        It registers two words of the counters as buffers, the only ones that differ between elements.
        """
        starts, size, first, second = {}, 0, [], []
        for name in self.pieces:
            starts[name] = size
            group, piece = name.split(".", 1)
            block, tensor = self.model.blocks.index(group), list(self.model.adapter_shapes(group)).index(piece)
            count = self._tensor(name).numel()
            if self.noise == "counter":  # a counter gives four elements, and the last counter's may go unused
                count = -(-count // 4)
                first.append(torch.arange(count, dtype=torch.int32))
                second.append(torch.full((count,), block << 16 | tensor, dtype=torch.int32))
                count *= 4
            size += count

        if first:
            self.register_buffer("counter_first", torch.cat(first))
            self.register_buffer("counter_second", torch.cat(second))
        return starts

    def _draw(self, noise: tuple[torch.Tensor, ...]) -> Callable[[str, tuple[int, ...], int, Any], torch.Tensor]:
        """A function that returns the noise of a piece for a query. The noise of each query is computed once."""
        by_query: dict[int, torch.Tensor] = {}

        def drawn(name: str, shape: tuple[int, ...], query: int, distribution: Any) -> torch.Tensor:
            if query not in by_query:
                is_input = self.noise == "input"
                by_query[query] = noise[0][query] if is_input else self._by_counter(query, noise, distribution)
            start = self._starts[name]
            return by_query[query][start : start + math.prod(shape)].reshape(shape)

        return drawn

    def _by_counter(self, query: int, noise: tuple[torch.Tensor, ...], distribution: Any) -> torch.Tensor:
        first: torch.Tensor = self.counter_first
        second: torch.Tensor = self.counter_second
        seed, step = noise
        return noise_in_graph(first, second, query, seed, step, distribution)

    # ---- weights -------------------------------------------------------------------------------------------------------------

    def _keep(self, group: str, name: str, tensor: torch.Tensor) -> None:
        buffer = f"weight_{group}_{name}".replace(".", "_").lower()
        self._weights.setdefault(group, {})[name] = buffer
        self.register_buffer(buffer, tensor)

    def _tensor(self, name: str) -> torch.Tensor:
        group, tensor = name.split(".", 1)
        buffer: torch.Tensor = getattr(self, self._weights[group][tensor])
        return buffer

    def _group(self, group: str) -> dict[str, Any]:
        """The weights of a group, in the form that a step reads them."""
        if group == "rope":
            return {name: Cell(self._tensor(f"rope.{name}")) for name in self._weights[group]}
        tree: dict[str, Any] = {}
        for name, shape in self.model.weight_shapes(group).items():
            if self.model.is_quantized(name):
                codes, scales = (Cell(self._tensor(f"{group}.{name}.{part}")) for part in ("codes", "scales"))
                tree[name] = QuantizedWeight(codes, scales, shape[1])
            else:
                tree[name] = Cell(self._tensor(f"{group}.{name}"))
        if group in self.model.blocks:
            tree |= {name: Cell(self._tensor(f"{group}.{name}")) for name in self.model.frozen_pieces(group)}
        return tree


def _check(record: MethodRecord, bundle: Bundle, length: int) -> None:
    """Raises ConfigError if the method's plan shows that no caller of `forward` can train with it."""
    file = next(plan.file for plan in record.plans if plan.sequence_length == length)
    plan = read_plan(bundle.read(file), file, bundle.manifest.graphs)
    if "finish" not in plan.sections:
        raise ConfigError(
            f"method '{record.name}'",
            got="a step that makes its own update",
            expected="one whose update trails by a call",
            next_step="Build the bundle with a method that does, where there is an option `dual_forwarding`: yes",
        )

    handed = {*BATCH, "learning_rate", "batch_tokens", *record.scalars}
    named = [
        value.place.name
        for value in plan.values
        if value.role in ("batch", "scalar") and isinstance(value.place, Named)
    ]
    if others := sorted({name.split("*")[0] for name in named} - handed):
        raise ConfigError(
            f"method '{record.name}'",
            got=f"a step that reads {', '.join(others)}",
            expected=f"one that reads no more than {', '.join(sorted(handed))}",
            next_step="Train with the device core, which runs every method",
        )


class _Method(torch.nn.Module):
    """A method of the step as a module. All such modules hold the step under one name, so engines share its buffers."""

    def __init__(self, step: ForwardOnly, method: str) -> None:
        super().__init__()
        self.step, self.method = step, method

    def forward(self, *operands: torch.Tensor) -> Any:
        return getattr(self.step, self.method)(*operands)


# ---- int4 operators as operators of ATen -----------------------------------------------------------------------------------------


def _decoded(codes: torch.Tensor, scales: torch.Tensor, columns: int) -> torch.Tensor:
    """W [out, columns] from codes uint8 [out, 16 * groups], low nibble first, and scales float16 [out, groups]."""
    nibbles = torch.stack([torch.bitwise_and(codes, 15), torch.bitwise_right_shift(codes, 4)], -1)
    grouped = nibbles.reshape(codes.shape[0], -1, GROUP).to(torch.float32) - 8.0
    return (grouped * scales.to(torch.float32)[..., None]).reshape(codes.shape[0], -1)[:, :columns]


def _linear(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, column_start: torch.Tensor | None, columns: int
) -> torch.Tensor:
    assert -(-columns // GROUP) == scales.shape[1]  # all columns, since `widest` cuts none off
    return x @ _decoded(codes, scales, columns).t()


def _embedding(tokens: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, columns: int) -> torch.Tensor:
    return _decoded(codes.index_select(0, tokens), scales.index_select(0, tokens), columns)


def _head(
    h: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    targets: torch.Tensor,
    start: torch.Tensor,
    *state: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    names = ("m", "l", "label", "best")
    new = head_chunk(h, _decoded(codes, scales, h.shape[1]), targets, start, dict(zip(names, state, strict=True)))
    return tuple(new[name] for name in names)


DECOMPOSITIONS: Mapping[Any, Callable[..., Any]] = {
    torch.ops.bespoke.linear_int4.default: _linear,
    torch.ops.bespoke.embedding_int4.default: _embedding,
    torch.ops.bespoke.head_chunk_int4.default: _head,
}
"""For `ExportedProgram.run_decompositions`. The operators that remain are known to every engine."""
