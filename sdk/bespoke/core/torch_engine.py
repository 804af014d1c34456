# SPDX-License-Identifier: Apache-2.0
"""torch as an engine of the core, in the process that calls it: for a GPU, and where the core has no ExecuTorch.

It runs the exported programs that every bundle carries, so it runs any bundle. On the CPU, values are in memory of the core. On
another device they are in tensors there, and the core copies them to read and write them. A group of weights is copied to the
device when the plan loads it, and dropped when the plan frees it.
"""

from __future__ import annotations

import ctypes as c
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from bespoke.core.engine_table import Artifact, EngineTable, NoMemory, OtherSignature, Tensor, listed, table_of
from bespoke.ops.load_program import load_program
from bespoke.rules.report import ComputedBy

__all__ = ["TorchEngine", "memory_may_lack", "view_of", "wanted_specs"]

_DTYPES = (torch.float32, torch.float16, torch.uint8, torch.int64, torch.int32)  # at their numbers in bespoke.h
_NO_MEMORY = "can't allocate memory"  # torch has no error class for it on the CPU
_VIEWS_KEPT = 4000  # views of the core's memory: every step of a plan uses the same ones
_OWN_MEMORY = ("finish", "allocate", "release", "read", "write", "map_weights", "unmap_weights", "peak_bytes")

Spec = tuple[tuple[int, ...], torch.dtype]


class TorchEngine:
    """An engine for one model of the core. Its `table` goes into the model's options.

    Args:
        device: torch's name of the device.
        own_memory: For tests: whether values are in tensors of the engine, on the CPU too. None: only on another device.

    Attributes:
        failure: The last exception of the engine.
        runtime: The engine's name in reports.
    """

    name = "torch"
    runs_graphs = True
    runtime: ComputedBy = "torch"

    def __init__(self, device: str = "cpu", *, own_memory: bool | None = None) -> None:
        self.failure: BaseException | None = None
        self._device = torch.device(device)
        self._programs: dict[int, tuple[Callable[..., Sequence[torch.Tensor]], list[Spec], list[Spec]]] = {}
        self._memory: dict[int, torch.Tensor] = {}  # bytes, by their handle
        self._views: dict[tuple[int, Spec], torch.Tensor] = {}
        self._handles = itertools.count(1)
        elsewhere = self._device.type != "cpu" if own_memory is None else own_memory
        self.table: EngineTable = table_of(self, _OWN_MEMORY if elsewhere else ())

    # ---- programs --------------------------------------------------------------------------------------------------------

    def open(self, artifact: Artifact) -> int:
        module = load_program(
            c.string_at(artifact.bytes, artifact.size), "the exported program", device=self._device.type
        )
        operands, results = wanted_specs(artifact)
        for what, wanted in (("operand", operands), ("result", results)):
            own: list[Spec] = module.meta[f"{what}s"]
            if len(own) != len(wanted):
                raise OtherSignature(f"{len(own)} {what}s")
            for number, (spec, own_spec) in enumerate(zip(wanted, own, strict=True)):
                if spec != own_spec:
                    raise OtherSignature(f"{what} {number} of {_shown(own_spec)}")
        return self._hold(module, operands, results)

    def _hold(self, program: Callable[..., Sequence[torch.Tensor]], operands: list[Spec], results: list[Spec]) -> int:
        """Keeps a program that `run` calls with tensors. Returns its handle."""
        handle = next(self._handles)
        self._programs[handle] = program, operands, results
        return handle

    def run(self, program: int, operands: Sequence[Tensor], results: Sequence[Tensor]) -> None:
        module, takes, gives = self._programs[program]
        with memory_may_lack(), torch.no_grad():
            given = [self._tensor(place, spec).to(self._device) for place, spec in zip(operands, takes, strict=True)]
            computed = module(*given)

            for number, (value, place, spec) in enumerate(zip(computed, results, gives, strict=True)):
                own_spec = (tuple(value.shape), value.dtype)
                if own_spec != spec:  # `open` checks only what the program declares
                    raise OtherSignature(f"result {number} of {_shown(own_spec)}")
                self._tensor(place, spec).copy_(value)

    def close(self, program: int) -> None:
        del self._programs[program]

    def _tensor(self, place: Tensor, spec: Spec) -> torch.Tensor:
        shape, dtype = spec
        if place.memory:
            size = math.prod(shape) * dtype.itemsize
            region = self._memory[place.memory]
            return region[place.offset : place.offset + size].view(dtype).view(shape)

        view = self._views.get((place.data, spec))
        if view is None:
            if len(self._views) >= _VIEWS_KEPT:
                self._views.clear()
            view = self._views[place.data, spec] = view_of(place.data, shape, dtype)
        return view

    # ---- memory that the CPU cannot address ---------------------------------------------------------------------------------

    def finish(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def allocate(self, size: int) -> int:
        with memory_may_lack():
            return self._keep(torch.zeros(size, dtype=torch.uint8, device=self._device))

    def release(self, memory: int) -> None:
        del self._memory[memory]

    def read(self, memory: int, offset: int, to: int, size: int) -> None:
        view_of(to, (size,), torch.uint8).copy_(self._memory[memory][offset : offset + size])

    def write(self, memory: int, offset: int, source: int, size: int) -> None:
        self._memory[memory][offset : offset + size].copy_(view_of(source, (size,), torch.uint8))

    def map_weights(self, address: int, size: int) -> int:
        with memory_may_lack():
            return self._keep(view_of(address, (size,), torch.uint8).to(self._device, copy=True))

    def unmap_weights(self, memory: int) -> None:
        del self._memory[memory]

    def peak_bytes(self) -> int:
        """Returns the peak memory that torch reserved on a GPU since the last call, used or not. 0 on the CPU.

        On the CPU, the peak of the process includes it.
        """
        if self._device.type != "cuda":
            return 0
        peak = torch.cuda.max_memory_reserved(self._device)
        torch.cuda.reset_peak_memory_stats(self._device)
        return int(peak)

    def _keep(self, memory: torch.Tensor) -> int:
        handle = next(self._handles)
        self._memory[handle] = memory
        return handle


@contextmanager
def memory_may_lack() -> Iterator[None]:
    """Turns torch's errors for a lack of memory into NoMemory."""
    try:
        yield
    except RuntimeError as problem:
        if isinstance(problem, torch.OutOfMemoryError) or _NO_MEMORY in str(problem):
            raise NoMemory(str(problem)) from problem
        raise


def view_of(address: int | None, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Returns a tensor over memory of the core. The memory outlives the tensor."""
    count = math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    memory: Any = (c.c_char * (count * dtype.itemsize)).from_address(address or 0)
    return torch.frombuffer(memory, dtype=dtype).view(shape)


def wanted_specs(artifact: Artifact) -> tuple[list[Spec], list[Spec]]:
    """Returns the specs that the operands and the results of an artifact must have."""
    operands = [_spec(tensor) for tensor in listed(artifact.operands, artifact.operand_count)]
    return operands, [_spec(tensor) for tensor in listed(artifact.results, artifact.result_count)]


def _spec(tensor: Tensor) -> Spec:
    return tuple(tensor.shape[: tensor.rank]), _DTYPES[tensor.dtype]


def _shown(spec: Spec) -> str:
    shape, dtype = spec
    return f"{str(dtype).removeprefix('torch.')} ({', '.join(map(str, shape))})"
