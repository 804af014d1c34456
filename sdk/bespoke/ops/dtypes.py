# SPDX-License-Identifier: Apache-2.0
"""Torch's dtypes by the names of element types in plans, manifests and signatures."""

from __future__ import annotations

import torch

TORCH_DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float16": torch.float16,
    "uint8": torch.uint8,
    "int64": torch.int64,
}
