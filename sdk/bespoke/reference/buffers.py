# SPDX-License-Identifier: Apache-2.0
"""The memory of a running plan: the arena, and the scratch memory, which the device core keeps in a mapped file.

Scratch holds checkpoints, sums over micro-batches, and two copies of adapter and optimizer state. `store` writes to the copy that
is not in use and `flip` ends a step, so a step can be rejected as a whole. Section `finish` stores to a place apart from both.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import torch

from bespoke.errors import AdapterError
from bespoke.ops.dtypes import TORCH_DTYPES
from bespoke.plan.arena import aligned
from bespoke.reference.code import PlanCode, ValuePlace


class Region:
    """A stretch of bytes from which tensors are cut."""

    def __init__(self, memory: torch.Tensor) -> None:
        self.bytes = memory

    def tensor(self, offset: int, shape: Iterable[int], dtype: str) -> torch.Tensor:
        """The tensor at `offset` bytes. It shares memory with the region."""
        torch_dtype = TORCH_DTYPES[dtype]
        shape = tuple(shape)
        size = math.prod(shape) * torch_dtype.itemsize
        return self.bytes[offset : offset + size].view(torch_dtype).view(shape)


def arena(size: int, device: torch.device) -> Region:
    """New memory of a device. On the CPU it is private anonymous memory, where a page counts once it is touched."""
    if device.type != "cpu" or not size:
        return Region(torch.empty(size, dtype=torch.uint8, device=device))
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return Region(torch.frombuffer(memory, dtype=torch.uint8))


class Layout:
    """The offsets of named values that lie one after the other."""

    def __init__(self, values: Iterable[ValuePlace]) -> None:
        self.records = {str(value.where): value for value in values}
        self.offsets: dict[str, int] = {}
        self.size = 0
        for name in sorted(self.records):
            self.offsets[name] = self.size
            self.size += max(64, aligned(self.records[name].nbytes))

    def tensors(self, region: Region, base: int) -> dict[str, torch.Tensor]:
        """The tensors of the values in `region`, from offset `base` on."""
        return {
            name: region.tensor(base + self.offsets[name], record.shape, record.dtype)
            for name, record in self.records.items()
        }


class Buffers:
    """Arena and scratch for all plans of a method, which share the layout of state, sums and session.

    The arena and the KV cache are on `device`. Scratch is on the host.
    """

    def __init__(self, plans: Collection[PlanCode], device: torch.device) -> None:
        values = [value for plan in plans for value in plan.values]
        self._device = device
        self.arena = arena(max(plan.arena_bytes for plan in plans), device)

        state = Layout(value for value in values if value.lifetime == "state")
        step = Layout(value for value in values if value.lifetime == "step")
        session = Layout(value for value in values if value.lifetime == "session")
        finished = Layout(
            value for plan in plans if "finish" in plan.sections for value in plan.values if value.role == "adapter"
        )

        checkpoints = max(plan.scratch_bytes for plan in plans)
        sizes = [_pages(checkpoints), _pages(step.size), _pages(state.size), _pages(state.size), _pages(finished.size)]
        self._scratch = arena(sum(sizes), torch.device("cpu"))
        bases = np.cumsum([0, *sizes]).tolist()

        self.step_values = step.tensors(self._scratch, bases[1])
        self._state = state
        self._copies = [state.tensors(self._scratch, base) for base in bases[2:4]]
        self.finished = finished.tensors(self._scratch, bases[4])
        self._current = 0
        self._session_layout = session
        self._session: dict[str, torch.Tensor] | None = None

    def checkpoint(self, offset: int, shape: Iterable[int], dtype: str) -> torch.Tensor:
        """A value that the plan keeps in scratch. Scratch begins with these values."""
        return self._scratch.tensor(offset, shape, dtype)

    @property
    def current(self) -> dict[str, torch.Tensor]:
        """The adapter and optimizer state that steps read."""
        return self._copies[self._current]

    @property
    def following(self) -> dict[str, torch.Tensor]:
        """The adapter and optimizer state that `store` writes. `flip` makes it current."""
        return self._copies[1 - self._current]

    def flip(self) -> None:
        """Makes the stored state current."""
        self._current = 1 - self._current

    def fill(self, tensors: Mapping[str, np.ndarray]) -> None:
        """Sets the state in both copies. Optimizer state that `tensors` lacks becomes zero; AdapterError for a missing piece."""
        for copy in self._copies:
            for name, target in copy.items():
                if name in tensors:
                    refuse_another_shape(name, tensors[name].shape, target.shape)
                    target.copy_(as_tensor(tensors[name]))
                elif self._state.records[name].role == "adapter":
                    refuse_another_shape(name, None, target.shape)
                else:
                    target.zero_()

    def begin_step(self) -> None:
        """Sets the sums over micro-batches to zero."""
        for value in self.step_values.values():
            value.zero_()

    def session(self) -> dict[str, torch.Tensor]:
        """The KV cache, which is allocated when a generation begins."""
        if self._session is None:
            self._session = self._session_layout.tensors(arena(self._session_layout.size, self._device), 0)
        return self._session

    def end_session(self) -> None:
        self._session = None


def refuse_another_shape(name: str, got: Sequence[int] | None, expected: Sequence[int]) -> None:
    """Raises AdapterError if a piece that a plan reads is missing or has another shape than the plan expects."""
    if got is None or list(got) != list(expected):
        raise AdapterError(
            f"piece '{name}'",
            got="none" if got is None else f"float32 {list(got)}",
            expected=f"float32 {list(expected)}",
            next_step="Use an adapter, or a state, of this bundle",
        )


class _Writable:
    """The memory of an array under the claim that it is writable."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def as_tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor over the array's memory.

    torch has no read-only tensors and warns about mapped weights. A graph is functional, so no operator writes to its operands.
    """
    return torch.from_numpy(array if array.flags.writeable else np.asarray(_Writable(array)))


def _pages(size: int) -> int:
    return -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
