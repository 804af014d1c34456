# SPDX-License-Identifier: Apache-2.0
"""A graph of a bundle as a function with the signature that the manifest states.

Plans are verified against that signature, so a program with another one is refused. The tensors that it declares are compared when
it is read. The tensors that it returns are compared when it is called, because a declaration may be wrong.
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
    """The program in `data` as a function. BundleError if it is not a program or not the one that `record` describes."""

    def __init__(self, data: bytes, record: GraphRecord, device: str = "cpu") -> None:
        self._record = record
        self._module = load_program(data, record.file, device=device)
        self._results = [(torch.Size(spec.shape), _DTYPES[spec.dtype]) for spec in record.outputs]
        for what, specs in (("operand", record.inputs), ("result", record.outputs)):
            self._compare(what, specs, self._module.meta[f"{what}s"])

    @property
    def workspace_bytes(self) -> int:
        """The memory of a call in addition to its operands."""
        return int(self._module.meta["workspace_bytes"])

    def __call__(self, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        try:
            results: tuple[torch.Tensor, ...] = self._module(*operands)
        except Exception as error:  # of any class: operators, their order and their numbers come from the bundle
            raise self._failed(error) from None
        for number, (result, (shape, dtype)) in enumerate(zip(results, self._results, strict=True)):
            if result.shape != shape or result.dtype != dtype:
                raise self._refused("result", number, (tuple(result.shape), result.dtype))
        return results

    def _compare(
        self, what: str, specs: Sequence[TensorRecord], declared: Sequence[tuple[tuple[int, ...], torch.dtype]]
    ) -> None:
        if len(specs) != len(declared):
            raise self._error(f"a program with {len(declared)} {what}s")
        for number, (spec, tensor) in enumerate(zip(specs, declared, strict=True)):
            if tensor != (tuple(spec.shape), _DTYPES[spec.dtype]):
                raise self._refused(what, number, tensor)

    def _refused(self, what: str, number: int, tensor: tuple[tuple[int, ...], torch.dtype]) -> BundleError:
        shape, dtype = tensor
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

    def _failed(self, error: Exception) -> BespokeError:
        """The error for a call that torch could not make."""
        message = str(error).strip().partition("\n")[0][:300] or type(error).__name__
        if isinstance(error, torch.OutOfMemoryError | MemoryError) or _NO_MEMORY in message:
            return BudgetExceeded(
                f"Graph '{self._record.name}'",
                got="no room for an allocation",
                expected="room within the limit that the system sets",
                next_step="Raise the limit or use a bundle built for a smaller budget",
            )
        return BundleError(
            f"{self._record.file}: graph '{self._record.name}'",
            got=f"a call that fails: {message}",
            expected="a call that torch can make",
            next_step="Get the bundle again from where it was built",
        )
