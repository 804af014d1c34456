# SPDX-License-Identifier: Apache-2.0
"""Random int4 weights and activations."""

from __future__ import annotations

import numpy as np
import torch

from bespoke.ops import (
    QuantizedWeight,
)
from bespoke.ops.int4 import GROUP


def weight(out: int, columns: int, seed: int = 0) -> tuple[QuantizedWeight, torch.Tensor]:
    """A random int4 weight and its dense form in float64: any codes, scales of both signs, and of a few groups 0."""
    generator = np.random.Generator(np.random.Philox(seed))
    groups = -(-columns // GROUP)
    nibbles = generator.integers(0, 16, (out, groups * GROUP)).astype(np.uint8)
    nibbles[:, columns:] = 8
    codes = nibbles[:, ::2] | nibbles[:, 1::2] << 4
    scales = (generator.uniform(0.1, 0.6, (out, groups)) * generator.choice([-1, -1, 1, 1, 0], (out, groups))).astype(
        np.float16
    )
    dense = torch.from_numpy((nibbles.astype(np.float64) - 8) * np.repeat(scales.astype(np.float64), GROUP, axis=1))[
        :, :columns
    ]
    return QuantizedWeight(torch.from_numpy(codes), torch.from_numpy(scales), columns), dense


def random(*shape: int, seed: int = 1, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.from_numpy(np.random.Generator(np.random.Philox(seed)).standard_normal(shape)).to(dtype)
