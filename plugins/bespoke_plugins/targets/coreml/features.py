# SPDX-License-Identifier: Apache-2.0
"""Maps a graph's tensors to the features of a spec: name, shape, element type and view.

Core ML takes fp32, fp16, int32 and (from iOS 26 on) int8 of rank 1 or more. So a scalar is a feature of shape [1] and int64 becomes
int32. The packed codes of a weight (uint8) are viewed as int8, or as int32 with four bytes each.
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
"""Largest integer in a feature: two of them add up within int32. A plan's tokens, positions and sizes are smaller. The window of a
layer that sees everything (2**40) is not, but 2**30 is also more than any position."""

NUMPY: dict[str, Any] = {"fp32": np.float32, "fp16": np.float16, "int32": np.int32, "int8": np.int8}
_PLAIN = {"float32": "fp32", "float16": "fp16", "int64": "int32", "int32": "int32"}


@dataclass(frozen=True)
class Feature:
    """A feature's `name`, the graph's `tensor`, and `shape` and `dtype` (MIL's name) in Core ML.

    `view`: "same" passes the tensor's bytes unchanged. "bytes" passes them under another element type. "value" converts int64 to
    int32: scalars are clamped to +-LARGEST and larger elements of other tensors are an error.
    """

    name: str
    tensor: TensorSpec
    shape: tuple[int, ...]
    dtype: str
    view: View

    @property
    def description(self) -> str:
        """Text of the feature in the spec: the JSON that tells an engine how to fill it."""
        tensor = self.tensor
        return json.dumps(
            {"tensor": tensor.name, "shape": list(tensor.shape), "dtype": tensor.dtype, "view": self.view}
        )

    @classmethod
    def described(cls, name: str, shape: tuple[int, ...], dtype: str, description: str) -> Feature:
        """A feature read from a spec. Raises DataError if its description does not name the tensor."""
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
    """Features for operands (`prefix` "x") or results ("y"), in their order."""
    return tuple(_feature(spec, f"{prefix}{number}", weights) for number, spec in enumerate(specs))


def _feature(spec: TensorSpec, name: str, weights: Weights) -> Feature:
    shape = spec.shape or (1,)
    if spec.dtype != "uint8":
        return Feature(name, spec, shape, _PLAIN[spec.dtype], "value" if spec.dtype == "int64" else "same")
    if weights == "int8":
        return Feature(name, spec, shape, "int8", "bytes")
    return Feature(name, spec, (*shape[:-1], shape[-1] // 4), "int32", "bytes")


def to_feature(feature: Feature, tensor: torch.Tensor) -> np.ndarray:
    """The array that a feature takes for an operand. Raises DataError for an integer beyond LARGEST."""
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
    """The graph's result from the array of a feature."""
    wanted = getattr(torch, feature.tensor.dtype)
    return torch.from_numpy(np.ascontiguousarray(array)).reshape(feature.tensor.shape).to(wanted)
