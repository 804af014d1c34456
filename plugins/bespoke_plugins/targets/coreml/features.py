# SPDX-License-Identifier: Apache-2.0
"""How a graph's tensors cross the border of a spec: by which feature, of which shape and element type, and seen how.

Core ML takes fp32, fp16, int32 and (from iOS 26 on) int8, of rank 1 at least. So a scalar is a feature of shape [1], int64 crosses
as int32, and the packed codes of a weight (uint8) are seen as int32, four bytes each, or as int8.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from bespoke.errors import DataError
from bespoke.graph import TensorSpec

__all__ = ["LARGEST", "NUMPY", "Feature", "Weights", "features_of", "from_feature", "to_feature"]

Weights = Literal["int32", "int8", "baked"]
View = Literal["same", "value", "bytes"]

LARGEST = 2**30
"""Of an integer that crosses: two of them add up within int32. A plan's numbers are below it (tokens, positions, sizes), but for
the window of a layer that sees everything (2**40), which is more than any position at 2**30, too."""

NUMPY: dict[str, Any] = {"fp32": np.float32, "fp16": np.float16, "int32": np.int32, "int8": np.int8}
_PLAIN = {"float32": "fp32", "float16": "fp16", "int64": "int32", "int32": "int32"}


@dataclass(frozen=True)
class Feature:
    """`name` of the feature, `tensor` that it is in the graph, `shape` and `dtype` (MIL's name) as Core ML sees it.

    `view`: "same": the tensor's bytes as they are. "bytes": the same bytes under another element type. "value": int64 made int32;
    scalars are clamped to +-LARGEST, and of others no element may be beyond.
    """

    name: str
    tensor: TensorSpec
    shape: tuple[int, ...]
    dtype: str
    view: View

    @property
    def description(self) -> str:
        """Of the feature in the spec: what an engine needs to know to fill it, as JSON."""
        tensor = self.tensor
        return json.dumps(
            {"tensor": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype, "view": self.view}
        )

    @classmethod
    def described(cls, name: str, shape: tuple[int, ...], dtype: str, description: str) -> Feature:
        """A feature of a spec that was read. Raises DataError for one that says nothing of the tensor that it is."""
        try:
            meaning = json.loads(description)
            return cls(
                name,
                TensorSpec(meaning["tensor"], tuple(meaning["shape"]), meaning["dtype"]),
                shape,
                dtype,
                meaning["view"],
            )
        except (ValueError, KeyError, TypeError):
            raise DataError(
                f"feature '{name}'",
                got=f"the description '{description[:100]}'",
                expected="tensor, shape, dtype and view as JSON",
                next_step="Build the bundle again",
            ) from None


def features_of(specs: Sequence[TensorSpec], prefix: str, weights: Weights) -> tuple[Feature, ...]:
    """Of operands (`prefix` "x") or results ("y"), in their order."""
    return tuple(_feature(spec, f"{prefix}{number}", weights) for number, spec in enumerate(specs))


def _feature(spec: TensorSpec, name: str, weights: Weights) -> Feature:
    shape = spec.shape or (1,)
    if spec.dtype != "uint8":
        return Feature(name, spec, shape, _PLAIN[spec.dtype], "value" if spec.dtype == "int64" else "same")
    if weights == "int8":
        return Feature(name, spec, shape, "int8", "bytes")
    return Feature(name, spec, (*shape[:-1], shape[-1] // 4), "int32", "bytes")


def to_feature(feature: Feature, tensor: torch.Tensor) -> np.ndarray:
    """What a feature is given for an operand. Raises DataError for an integer that int32 cannot stand for."""
    array = tensor.detach().contiguous().numpy()
    if feature.view == "bytes":
        return array.view(NUMPY[feature.dtype]).reshape(feature.shape)
    if feature.view == "value":
        if array.ndim and array.size and np.abs(array).max() > LARGEST:
            raise DataError(
                f"operand '{feature.tensor.name}'",
                got=f"the integer {int(array.flat[np.abs(array).argmax()])}",
                expected=f"integers of at most {LARGEST}, which Core ML's int32 can add",
                next_step="Look for what made it",
            )
        array = np.clip(array, -LARGEST, LARGEST)
    return array.astype(NUMPY[feature.dtype], copy=False).reshape(feature.shape)


def from_feature(feature: Feature, array: np.ndarray) -> torch.Tensor:
    """The result that a feature stands for."""
    wanted = getattr(torch, feature.tensor.dtype)
    return torch.from_numpy(np.ascontiguousarray(array)).reshape(feature.tensor.shape).to(wanted)
