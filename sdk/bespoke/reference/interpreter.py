# SPDX-License-Identifier: Apache-2.0
"""Runs a plan with torch, instruction by instruction: the reference for every other runtime.

It knows the ten instructions and nothing about the method.
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
from bespoke.plan.kinds import MAX_QUERY, array_name
from bespoke.reference.buffers import Buffers, refuse_another_shape
from bespoke.reference.code import (
    CallCode,
    Code,
    EmitCode,
    GroupCode,
    NoiseCode,
    PlanCode,
    ReceiveCode,
    RecordCode,
    Reference,
    SendCode,
    StoreCode,
    ValuePlace,
    ZeroCode,
)
from bespoke.reference.weights import Weights
from bespoke.rules.noise import noise

Function = Callable[..., tuple[torch.Tensor, ...]]
# Views of about 0.4 KB: enough for all of a small plan. In a large plan a call takes far longer than a view.
VIEWS_KEPT = 2000


@dataclass(frozen=True)
class Bindings:
    """The inputs of a section: batch tensors and scalars by name, and the key of the noise."""

    tensors: Mapping[str, torch.Tensor]
    scalars: Mapping[str, float]
    seed: int = 0
    step: int = 0
    adapter: Mapping[str, torch.Tensor] | None = None  # replaces the current one
    received: Mapping[str, np.ndarray] = field(default_factory=dict)  # what a round brought, by name


@dataclass
class Outcome:
    """The results of a section: emitted values by name, recorded values in order, and what it sends."""

    metrics: dict[str, Any] = field(default_factory=dict)
    recorded: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)

    @property
    def finite(self) -> bool:
        scalars = [v for v in self.metrics.values() if isinstance(v, float)]
        return all(math.isfinite(v) for v in [*scalars, *self.recorded])


class Interpreter:
    """Runs one plan over shared buffers and weights."""

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
        """Runs a section. The caller flips the buffers to keep what it stored."""
        stored = self._buffers.finished if section == "finish" else self._buffers.following
        return self._execute(self.plan.sections[section], bindings, {}, stored)

    def finished(self, scalars: Mapping[str, float]) -> Mapping[str, torch.Tensor] | None:
        """The adapter that section `finish` computes, None if the plan has no such section."""
        if "finish" not in self.plan.sections:
            return None
        self.run("finish", Bindings({}, scalars))
        return self._buffers.finished

    def replay(self, bindings: Bindings, recorded: Sequence[float]) -> None:
        """Repeats a step's stores from its recorded values. The caller flips the buffers, as after `run`."""
        rest = np.array(recorded, np.float32)
        expected = sum(math.prod(self.plan.values[value].shape) for value in self.plan.recorded)
        if len(rest) != expected:
            raise StateError(
                "journal",
                got=f"{len(rest)} recorded values",
                expected=f"{expected}, those of the method's step",
                next_step="Reset the state",
            )

        given: dict[int, torch.Tensor] = {}
        for value in self.plan.recorded:
            shape = self.plan.values[value].shape
            size = math.prod(shape)
            given[value], rest = torch.tensor(rest[:size], device=self._device).view(shape), rest[size:]
        self._execute(self.plan.replay, bindings, given, self._buffers.following)

    def _execute(
        self,
        code: Sequence[Code],
        bindings: Bindings,
        given: dict[int, torch.Tensor],
        stored: Mapping[str, torch.Tensor],
    ) -> Outcome:
        """Runs instructions. `given` holds values that are not in the buffers, by number. `store` writes to `stored`."""
        outcome = Outcome()
        with torch.no_grad():
            for instruction in code:
                match instruction:
                    case CallCode():
                        self._call(instruction, bindings, given)
                    case GroupCode(group, load):
                        if load:
                            self._weights.load(group)
                        else:
                            self._weights.free(group)
                    case ZeroCode(value):
                        self._find(value, bindings, given).zero_()
                    case NoiseCode():
                        self._noise(instruction, bindings, given)
                    case RecordCode(source, value):
                        kept = self._find(value, bindings, given)
                        kept.copy_(self._find(source, bindings, given))
                        outcome.recorded += kept.reshape(-1).tolist()
                    case StoreCode(name, source):
                        stored[name].copy_(self._find(source, bindings, given))
                    case EmitCode(name, source):
                        value = self._find(source, bindings, given)
                        outcome.metrics[name] = value.item() if value.numel() == 1 else value.cpu().clone()
                    case ReceiveCode(name, value):
                        self._receive(name, self._find(value, bindings, given), bindings)
                    case SendCode(source):
                        outcome.sent += self._find(source, bindings, given).reshape(-1).tolist()
        return outcome

    def _call(self, call: CallCode, bindings: Bindings, given: dict[int, torch.Tensor]) -> None:
        operands = [self._find(operand, bindings, given) for operand in call.operands]
        if self._device.type != "cpu":  # state, sums and checkpoints are on the host
            operands = [operand.to(self._device) for operand in operands]

        results = self._functions[call.graph](*operands)
        for reference, add, value in zip(call.results, call.adds, results, strict=True):
            target = self._find(reference, bindings, given)
            if add:
                target.add_(value.to(target.device))
            else:
                target.copy_(value)

    def _noise(self, code: NoiseCode, bindings: Bindings, given: dict[int, torch.Tensor]) -> None:
        target = self._find(code.value, bindings, given)
        query = code.query
        if code.query_scalar is not None:
            query += int(self._scalar(code.query_scalar, bindings))
        if not 0 <= query < MAX_QUERY:
            raise PlanError(
                f"Plan of '{self.plan.method}', noise of value {code.value[0]}",
                got=f"query {query}",
                expected=f"a query from 0 to {MAX_QUERY - 1}",
                next_step="Give a smaller direction",
            )
        drawn = noise(
            target.shape,
            seed=bindings.seed,
            step=bindings.step,
            query=query,
            block=code.block,
            tensor=code.tensor,
            distribution=code.distribution,  # type: ignore[arg-type]
            out=target.numpy() if target.device.type == "cpu" else None,
        )
        if target.device.type != "cpu":
            target.copy_(torch.from_numpy(drawn))

    def _receive(self, name: str, target: torch.Tensor, bindings: Bindings) -> None:
        brought = bindings.received.get(name)
        if brought is None:
            target.zero_()
            return
        value = torch.from_numpy(brought)
        if value.shape != target.shape or value.dtype != target.dtype:
            raise DataError(
                f"'{name}' of the round",
                got=f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}",
                expected=f"{str(target.dtype).removeprefix('torch.')} {list(target.shape)}",
                next_step="Get the round again from its server",
            )
        target.copy_(value)

    # ---- the place of a value ------------------------------------------------------------------------------------------

    def _find(self, reference: Reference, bindings: Bindings, given: dict[int, torch.Tensor]) -> torch.Tensor:
        """The tensor of an operand."""
        if given and reference[0] in given:
            return given[reference[0]]
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
        """Rows of a value whose start is a scalar."""
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
        array = bindings.tensors.get(name)
        if array is None or tuple(array.shape) != tuple(value.shape) or array.dtype != TORCH_DTYPES[value.dtype]:
            got = "rows without it"
            if array is not None:
                got = f"{str(array.dtype).removeprefix('torch.')} {list(array.shape)}"
            raise DataError(
                f"Array '{array_name(name)}' of method '{self.plan.method}'",
                got=got,
                expected=f"{value.dtype} {list(value.shape)}",
                next_step="Use another method: examples hold tokens and mask, and pairs of answers alone",
            )
        return array

    def _whole(self, number: int, bindings: Bindings) -> tuple[torch.Tensor, bool]:
        """The tensor of a value, and whether it stays in the same place from call to call."""
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
