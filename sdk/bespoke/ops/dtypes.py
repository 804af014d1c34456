# SPDX-License-Identifier: Apache-2.0
"""Element types: names in plans and manifests, numbers in exported programs, and what torch calls them."""

from __future__ import annotations

import torch

__all__ = ["PROGRAM_DTYPES", "TORCH_DTYPES", "Tensors"]

Tensors = dict[str, torch.Tensor]

TORCH_DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "uint8": torch.uint8,
    "int64": torch.int64,
}

PROGRAM_DTYPES: dict[int, torch.dtype] = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    12: torch.bool,
    13: torch.bfloat16,
}
"""By the number that torch.export's serialisation gives them, major version 8."""
