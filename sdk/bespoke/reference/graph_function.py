# SPDX-License-Identifier: Apache-2.0
"""A graph of a bundle as a function, held to the signature that the manifest gives it.

A plan was verified against that signature. A program that takes or gives anything else is refused: when it is read, for what it
says of its tensors, and when it is called, for what comes out, because saying is not computing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from bespoke.bundle.target_records import GraphRecord, TensorRecord
from bespoke.errors import BespokeError, BudgetExceeded, BundleError
from bespoke.ops.dtypes import TORCH_DTYPES
from bespoke.ops.load_program import load_program

__all__ = ["GraphFunction"]

_DTYPES = {**TORCH_DTYPES, "int32": torch.int32}
_NO_MEMORY = "can't allocate memory"  # torch has no error of its own for it on the CPU


class GraphFunction:
    """The program in `data`. BundleError where it is none, or another one than `record` says."""

    def __init__(self, data: bytes, record: GraphRecord, device: str = "cpu") -> None:
        self._record = record
        self._module = load_program(data, record.file, device=device)
        self._results = [(torch.Size(spec.shape), _DTYPES[spec.dtype]) for spec in record.outputs]
        for what, specs in (("operand", record.inputs), ("result", record.outputs)):
            self._compare(what, specs, self._module.meta[f"{what}s"])

    @property
    def workspace_bytes(self) -> int:
        """Memory of a call in addition to its operands."""
        return int(self._module.meta["workspace_bytes"])

    def __call__(self, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        try:
            results: tuple[torch.Tensor, ...] = self._module(*operands)
        except Exception as problem:  # whatever it is: the operators, their order and their numbers are the bundle's
            raise self._failed(problem) from None
        for number, (result, (shape, dtype)) in enumerate(zip(results, self._results, strict=True)):
            if result.shape != shape or result.dtype != dtype:
                raise self._refused("result", number, (tuple(result.shape), result.dtype))
        return results

    def _compare(
        self, what: str, specs: Sequence[TensorRecord], own: Sequence[tuple[tuple[int, ...], torch.dtype]]
    ) -> None:
        if len(specs) != len(own):
            raise self._error(f"a program with {len(own)} {what}s")
        for number, (spec, found) in enumerate(zip(specs, own, strict=True)):
            if found != (tuple(spec.shape), _DTYPES[spec.dtype]):
                raise self._refused(what, number, found)

    def _refused(self, what: str, number: int, found: tuple[tuple[int, ...], torch.dtype]) -> BundleError:
        shape, dtype = found
        return self._error(
            f"a program with {what} {number} of {str(dtype).removeprefix('torch.')} ({', '.join(map(str, shape))})"
        )

    def _error(self, got: str) -> BundleError:
        return BundleError(
            self._record.file,
            got=got,
            expected=f"the operands and results that the manifest says graph '{self._record.name}' has",
            next_step="Get the bundle again from where it was built",
        )

    def _failed(self, problem: Exception) -> BespokeError:
        said = str(problem).strip().partition("\n")[0][:300] or type(problem).__name__
        if isinstance(problem, torch.OutOfMemoryError | MemoryError) or _NO_MEMORY in said:
            return BudgetExceeded(
                f"Graph '{self._record.name}'",
                got="no room for an allocation",
                expected="room within the limit that the system sets",
                next_step="Raise the limit or use a bundle built for a smaller budget",
            )
        return BundleError(
            f"{self._record.file}: graph '{self._record.name}'",
            got=f"a call that fails: {said}",
            expected="a call that torch can make",
            next_step="Get the bundle again from where it was built",
        )
