# SPDX-License-Identifier: Apache-2.0
"""Runs a plan with torch, instruction by instruction: the reference for every other runtime.

It knows the eight instructions and nothing of the method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bespoke.errors import BundleError, DataError, PlanError, StateError
from bespoke.ops.dtypes import TORCH_DTYPES
from bespoke.plan.instructions import SectionName
from bespoke.plan.kinds import array_name
from bespoke.reference.buffers import Buffers, refuse_another_shape
from bespoke.reference.code import (
    CallCode,
    Code,
    EmitCode,
    GroupCode,
    NoiseCode,
    PlanCode,
    RecordCode,
    Reference,
    StoreCode,
    ValuePlace,
    ZeroCode,
)
from bespoke.reference.weights import Weights
from bespoke.rules.noise import noise

Function = Callable[..., tuple[torch.Tensor, ...]]
VIEWS_KEPT = 2000  # about 0.4 KB each: small plans keep all of theirs, large ones have calls that dwarf a view


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
        self, plan: PlanCode, functions: Sequence[Function], weights: Weights, buffers: Buffers, device: torch.device
    ) -> None:
        self.plan = plan
        self._functions = functions
        self._weights = weights
        self._buffers = buffers
        self._device = device
        self._views: dict[Reference, torch.Tensor] = {}

    def run(self, section: SectionName, bindings: Bindings) -> Outcome:
        stored = self._buffers.finished if section == "finish" else self._buffers.following
        return self._execute(self.plan.sections[section], bindings, {}, stored)

    def finished(self, scalars: Mapping[str, float]) -> Mapping[str, torch.Tensor] | None:
        """What the adapter comes to, by section `finish`; None where the adapter is held as it is."""
        if "finish" not in self.plan.sections:
            return None
        self.run("finish", Bindings({}, scalars))
        return self._buffers.finished

    def replay(self, bindings: Bindings, recorded: Sequence[float]) -> None:
        """Makes a step's stores again from what was recorded. The caller flips the buffers, as after `run`."""
        made: dict[int, torch.Tensor] = {}
        rest = np.array(recorded, np.float32)
        wanted = sum(math.prod(self.plan.values[value].shape) for value in self.plan.recorded)
        if len(rest) != wanted:
            raise StateError(
                "journal",
                got=f"{len(rest)} recorded values",
                expected=f"{wanted}, those of the method's step",
                next_step="Reset the state",
            )
        for value in self.plan.recorded:
            shape = self.plan.values[value].shape
            size = math.prod(shape)
            made[value], rest = torch.tensor(rest[:size], device=self._device).view(shape), rest[size:]
        self._execute(self.plan.replay, bindings, made, self._buffers.following)

    def _execute(
        self,
        code: Sequence[Code],
        bindings: Bindings,
        made: dict[int, torch.Tensor],
        stored: Mapping[str, torch.Tensor],
    ) -> Outcome:
        outcome = Outcome()
        with torch.no_grad():
            for instruction in code:
                match instruction:
                    case CallCode():
                        self._call(instruction, bindings, made)
                    case GroupCode(group, load):
                        if load:
                            self._weights.load(group)
                        else:
                            self._weights.free(group)
                    case ZeroCode(value):
                        self._find(value, bindings, made).zero_()
                    case NoiseCode():
                        self._noise(instruction, bindings, made)
                    case RecordCode(source, value):
                        kept = self._find(value, bindings, made)
                        kept.copy_(self._find(source, bindings, made))
                        outcome.recorded += kept.reshape(-1).tolist()
                    case StoreCode(name, source):
                        stored[name].copy_(self._find(source, bindings, made))
                    case EmitCode(name, source):
                        value = self._find(source, bindings, made)
                        outcome.metrics[name] = value.item() if value.numel() == 1 else value.cpu().clone()
        return outcome

    def _call(self, call: CallCode, bindings: Bindings, made: dict[int, torch.Tensor]) -> None:
        operands = [self._find(operand, bindings, made) for operand in call.operands]
        if self._device.type != "cpu":  # state, sums and checkpoints are on the host
            operands = [operand.to(self._device) for operand in operands]
        results = self._functions[call.graph](*operands)
        for reference, add, value in zip(call.results, call.adds, results, strict=True):
            target = self._find(reference, bindings, made)
            if add:
                target.add_(value.to(target.device))
            else:
                target.copy_(value)

    def _noise(self, code: NoiseCode, bindings: Bindings, made: dict[int, torch.Tensor]) -> None:
        target = self._find(code.value, bindings, made)
        drawn = noise(
            target.shape,
            seed=bindings.seed,
            step=bindings.step,
            query=code.query,
            block=code.block,
            tensor=code.tensor,
            distribution=code.distribution,  # type: ignore[arg-type]
            out=target.numpy() if target.device.type == "cpu" else None,
        )
        if target.device.type != "cpu":
            target.copy_(torch.from_numpy(drawn))

    # ---- where a value is ----------------------------------------------------------------------------------------------

    def _find(self, reference: Reference, bindings: Bindings, made: dict[int, torch.Tensor]) -> torch.Tensor:
        if made and reference[0] in made:
            return made[reference[0]]
        view = self._views.get(reference)
        if view is not None:
            return view
        if len(reference) == 4:
            return self._rows_at(reference, bindings)
        whole, keep = self._whole(reference[0], bindings)
        view = whole if len(reference) == 1 else whole[reference[1] : reference[1] + reference[2]]
        if keep and len(self._views) < VIEWS_KEPT:
            self._views[reference] = view
        return view

    def _rows_at(self, reference: Reference, bindings: Bindings) -> torch.Tensor:
        value, start, rows, scalar = reference
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
        place = self.plan.values[value]
        if place.kind == "number":
            return float(place.where)
        name = str(place.where)
        if name not in bindings.scalars:
            raise PlanError(
                f"Plan of '{self.plan.method}'",
                got=f"no value for the scalar '{name}'",
                expected=f"one of the bound scalars: {', '.join(sorted(bindings.scalars))}",
                next_step=f"Give the method an option named '{name}'",
            )
        return bindings.scalars[name]

    def _weight(self, name: str, value: ValuePlace) -> torch.Tensor:
        tensor = self._weights.tensor(name)
        if tensor is None or tuple(tensor.shape) != value.shape or tensor.dtype != TORCH_DTYPES[value.dtype]:
            raise BundleError(
                f"weight '{name}'",
                got="none, or of another type or shape than the plan reads",
                expected="the weights of the plan",
                next_step="Build the bundle again",
            )
        return tensor

    def _array(self, name: str, value: ValuePlace, bindings: Bindings) -> torch.Tensor:
        found = bindings.tensors.get(name)
        if found is None or tuple(found.shape) != tuple(value.shape) or found.dtype != TORCH_DTYPES[value.dtype]:
            raise DataError(
                f"Array '{array_name(name)}' of method '{self.plan.method}'",
                got="rows without it"
                if found is None
                else f"{str(found.dtype).removeprefix('torch.')} {list(found.shape)}",
                expected=f"{value.dtype} {list(value.shape)}",
                next_step="Use another method: examples hold tokens and mask, and no arrays yet",
            )
        return found

    def _whole(self, number: int, bindings: Bindings) -> tuple[torch.Tensor, bool]:
        """The tensor, and whether it stays where it is from call to call."""
        value = self.plan.values[number]
        match value.kind, value.where:
            case ("arena", int(offset)):
                return self._buffers.arena.tensor(offset, value.shape, value.dtype), True
            case ("scratch", int(offset)):
                return self._buffers.checkpoint(offset, value.shape, value.dtype), True
            case ("number", int(fixed)):
                return torch.tensor(fixed, dtype=torch.int64, device=self._device), True
        name = str(value.where)
        match value.role, value.lifetime:
            case ("weight", _):
                return self._weight(name, value), self._device.type == "cpu"
            case ("scalar", _):
                dtype = torch.int64 if value.dtype == "int64" else torch.float32
                return torch.tensor(self._scalar(number, bindings), dtype=dtype, device=self._device), False
            case ("batch", _):
                base, _, copies = name.partition("*")
                tensor = bindings.tensors[base] if array_name(name) is None else self._array(name, value, bindings)
                return (tensor.repeat(int(copies), 1) if copies else tensor), False
            case ("adapter", _) if bindings.adapter is not None:
                piece = bindings.adapter.get(name)
                refuse_another_shape(name, None if piece is None else piece.shape, value.shape)
                return bindings.adapter[name], False
            case (_, "state"):
                return self._buffers.current[name], False
            case (_, "step"):
                return self._buffers.step_values[name], True
            case _:
                return self._buffers.session()[name], False
