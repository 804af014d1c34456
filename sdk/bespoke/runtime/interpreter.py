# SPDX-License-Identifier: Apache-2.0
"""Runs a plan with torch, instruction by instruction: the reference for every other runtime, and what runs on CUDA.

It knows the eight instructions and nothing of the method. Before each load and call the memory guard is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bespoke.errors import PlanError
from bespoke.plan.instructions import (
    Call,
    Emit,
    Free,
    Instruction,
    Load,
    Noise,
    Operand,
    Plan,
    Record,
    SectionName,
    Store,
    Zero,
)
from bespoke.plan.replay import recorded_values, replay_slice
from bespoke.runtime.buffers import Buffers
from bespoke.runtime.memory import MemoryGuard
from bespoke.runtime.noise import noise
from bespoke.runtime.weights import Weights

Function = Callable[..., tuple[torch.Tensor, ...]]
VIEWS_KEPT = 2000  # about 0.4 KB each: small plans keep all of theirs, large ones have calls that dwarf a view


class Abandoned(Exception):
    """The step was asked to stop; nothing of it was kept."""


@dataclass(frozen=True)
class Bindings:
    """What the runtime gives a section: batch tensors and scalars by name, and the key of the noise."""

    tensors: Mapping[str, torch.Tensor]
    scalars: Mapping[str, float]
    seed: int = 0
    step: int = 0
    adapter: Mapping[str, torch.Tensor] | None = None  # read in place of the current one


@dataclass
class Outcome:
    """Emitted values by name, and recorded ones in order."""

    metrics: dict[str, Any] = field(default_factory=dict)
    recorded: list[float] = field(default_factory=list)

    @property
    def finite(self) -> bool:
        scalars = [v for v in self.metrics.values() if isinstance(v, float)]
        return all(math.isfinite(v) for v in [*scalars, *self.recorded])


class Interpreter:
    """One plan over shared buffers and weights."""

    def __init__(
        self, plan: Plan, functions: Sequence[Function], weights: Weights, buffers: Buffers, guard: MemoryGuard,
        device: torch.device, observe: Callable[[Instruction], None] | None = None,
    ) -> None:
        self.plan = plan
        self._functions = functions
        self._weights = weights
        self._buffers = buffers
        self._guard = guard
        self._device = device
        self._observe = observe
        self._views: dict[tuple[int, ...], torch.Tensor] = {}
        self._roles = [value.role for value in plan.values]

    def run(self, section: SectionName, bindings: Bindings, stop: Callable[[], bool] | None = None) -> Outcome:
        """Runs a section. `stop` is asked before every instruction; then Abandoned is raised and nothing is kept."""
        return self._execute(self.plan.sections[section], bindings, {}, stop)

    def replay(self, section: SectionName, bindings: Bindings, recorded: Sequence[float]) -> None:
        """Makes a step's stores again from what was recorded. The caller flips the buffers, as after `run`."""
        code = self.plan.sections[section]
        positions = replay_slice(code, self._roles)
        if positions is None:
            raise PlanError(
                f"Plan of '{self.plan.method}'",
                got="a journal to replay",
                expected="a plan whose stores depend on recorded values alone",
                next_step="Resume from a slot",
            )
        made: dict[int, torch.Tensor] = {}
        rest = list(recorded)
        for value in recorded_values(code):
            size = math.prod(self.plan.values[value].shape)
            flat = torch.tensor(np.array(rest[:size], np.float32), device=self._device)
            made[value], rest = flat.view(self.plan.values[value].shape), rest[size:]
        kept = [code[p] for p in positions if not isinstance(code[p], Record)]
        self._execute(kept, bindings, made, None)

    def _execute(
        self, code: Sequence[Instruction], bindings: Bindings, made: dict[int, torch.Tensor], stop: Callable[[], bool] | None
    ) -> Outcome:
        outcome = Outcome()
        with torch.no_grad():
            for instruction in code:
                if stop is not None and stop():
                    raise Abandoned
                match instruction:
                    case Call():
                        self._call(instruction, bindings, made)
                    case Load():
                        self._guard.ask(0, f"Weights '{instruction.group}'")
                        self._weights.load(instruction.group)
                    case Free():
                        if instruction.group is not None:
                            self._weights.free(instruction.group)
                    case Zero():
                        self._find([instruction.value], bindings, made).zero_()
                    case Noise():
                        self._noise(instruction, bindings, made)
                    case Record():
                        kept = self._find([instruction.value], bindings, made)
                        kept.copy_(self._find([instruction.source], bindings, made))
                        outcome.recorded += kept.reshape(-1).tolist()
                    case Store():
                        name = self.plan.values[instruction.state].place.name  # type: ignore[union-attr]
                        self._buffers.following[name].copy_(self._find(instruction.source, bindings, made))
                    case Emit():
                        value = self._find([instruction.source], bindings, made)
                        outcome.metrics[instruction.name] = value.item() if value.numel() == 1 else value.cpu().clone()
                if self._observe is not None:
                    self._observe(instruction)
        return outcome

    def _call(self, call: Call, bindings: Bindings, made: dict[int, torch.Tensor]) -> None:
        graph = self.plan.graphs[call.graph]
        self._guard.ask(graph.workspace_bytes, f"Graph '{graph.name}' of method '{self.plan.method}'")
        operands = [self._find(operand, bindings, made) for operand in call.operands]
        results = self._functions[call.graph](*operands)
        for result, value in zip(call.results, results, strict=True):
            target = self._find(result.to, bindings, made)
            if result.how == "add_to":
                target.add_(value)
            else:
                target.copy_(value)

    def _noise(self, instruction: Noise, bindings: Bindings, made: dict[int, torch.Tensor]) -> None:
        target = self._find([instruction.value], bindings, made)
        drawn = noise(
            target.shape, seed=bindings.seed, step=bindings.step, query=instruction.query, block=instruction.block,
            tensor=instruction.tensor, distribution=instruction.distribution,
            out=target.numpy() if target.device.type == "cpu" else None,
        )  # fmt: skip
        if target.device.type != "cpu":
            target.copy_(torch.from_numpy(drawn))

    # ---- where a value is ----------------------------------------------------------------------------------------------

    def _find(self, operand: Operand, bindings: Bindings, made: dict[int, torch.Tensor]) -> torch.Tensor:
        if operand[0] in made:
            return made[operand[0]]
        if len(operand) == 4:
            return self._rows_at(operand, bindings)
        key = tuple(operand)
        view = self._views.get(key)
        if view is not None:
            return view
        whole, keep = self._whole(operand[0], bindings)
        view = whole if len(operand) == 1 else whole[operand[1] : operand[1] + operand[2]]
        if keep and len(self._views) < VIEWS_KEPT:
            self._views[key] = view
        return view

    def _rows_at(self, operand: Operand, bindings: Bindings) -> torch.Tensor:
        value, start, rows, scalar = operand
        whole, _ = self._whole(value, bindings)
        first = start + int(self._scalar(scalar, bindings))
        if not 0 <= first <= whole.shape[0] - rows:
            raise PlanError(
                f"Plan of '{self.plan.method}', value {value}",
                got=f"rows {first} to {first + rows}",
                expected=f"a range within its {whole.shape[0]} rows",
                next_step="Keep the position within the context length",
            )
        return whole[first : first + rows]

    def _scalar(self, value: int, bindings: Bindings) -> float:
        place = self.plan.values[value].place
        if place.kind == "number":
            return place.number
        name = place.name  # type: ignore[union-attr]
        if name not in bindings.scalars:
            raise PlanError(
                f"Plan of '{self.plan.method}'",
                got=f"no value for the scalar '{name}'",
                expected=f"one of the bound scalars: {', '.join(sorted(bindings.scalars))}",
                next_step=f"Give the method an option named '{name}'",
            )
        return bindings.scalars[name]

    def _whole(self, value: int, bindings: Bindings) -> tuple[torch.Tensor, bool]:
        """The tensor, and whether it stays where it is from call to call."""
        record = self.plan.values[value]
        place = record.place
        if place.kind == "arena":
            return self._buffers.arena.tensor(place.offset, record.shape, record.dtype), True
        if place.kind == "scratch":
            return self._buffers.scratch.tensor(self._buffers.scratch_base + place.offset, record.shape, record.dtype), True
        if place.kind == "number":
            return torch.tensor(place.number, dtype=torch.int64, device=self._device), True
        name = place.name
        match record.role, record.lifetime:
            case ("weight", _):
                return self._weights.tensor(name), self._device.type == "cpu"
            case ("scalar", _):
                dtype = torch.int64 if record.dtype == "int64" else torch.float32
                return torch.tensor(self._scalar(value, bindings), dtype=dtype, device=self._device), False
            case ("batch", _):
                return bindings.tensors[name].to(self._device), False
            case ("adapter", _) if bindings.adapter is not None:
                return bindings.adapter[name].to(self._device), False
            case (_, "state"):
                return self._buffers.current[name].to(self._device), False
            case (_, "step"):
                return self._buffers.step_values[name], True
            case _:
                return self._buffers.session()[name], False
