# SPDX-License-Identifier: Apache-2.0
"""Rotary tables. Scaling and several bases change only these tables; graphs do not depend on them.

Rotary position embedding (Su et al. 2021): pair j of a head at position t turns by t * f_j, f_j = theta^(-2j / d).
linear (position interpolation, Chen et al. 2023): f_j / factor. llama3: f_j for wavelengths below L / high, f_j /
factor above L / low, blended between, L being the length the model was first trained on. cos and sin are those of the
fp32 angle, as transformers computes them: at position 10,000 an angle carries about 1e-3 of rounding that a model was
trained with.
"""

from __future__ import annotations

import math

import numpy as np

from bespoke.errors import ModelError
from bespoke.model.architecture import RopeConfig

__all__ = ["rope_frequencies", "rope_stretch", "rope_tables"]


def rope_tables(rope: RopeConfig, head_dim: int, positions: int) -> tuple[np.ndarray, np.ndarray]:
    """(cos, sin), each float32 [positions, head_dim / 2], for positions 0 onwards."""
    angles = np.arange(positions, dtype=np.float32)[:, None] * rope_frequencies(rope, head_dim)  # fp32 on purpose
    exact = angles.astype(np.float64)
    return np.cos(exact).astype(np.float32), np.sin(exact).astype(np.float32)


def rope_frequencies(rope: RopeConfig, head_dim: int) -> np.ndarray:
    """Turn per position of each pair, float32 [head_dim / 2].

    The power is computed in float64 and rounded once. It equals torch's fp32 power, except that an
    entry in several hundred differs by a unit in the last place.
    """
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    power = np.power(rope.theta, exponents.astype(np.float64)).astype(np.float32)
    frequencies = np.float32(1) / power
    if rope.kind == "linear":
        return frequencies / np.float32(_needed(rope, "factor"))
    if rope.kind == "llama3":
        return _llama3(rope, frequencies)
    return frequencies


def _llama3(rope: RopeConfig, frequencies: np.ndarray) -> np.ndarray:
    factor, length = np.float32(_needed(rope, "factor")), _needed(rope, "original_max_positions")
    low, high = _needed(rope, "low_freq_factor"), _needed(rope, "high_freq_factor")
    unit = np.float32(1)
    # torch divides a number by a tensor as the number times the reciprocal. These two roundings are repeated here.
    wavelengths = unit / frequencies * np.float32(2 * math.pi)
    long = wavelengths > np.float32(length / low)
    short = wavelengths < np.float32(length / high)
    scaled = np.where(long, frequencies / factor, frequencies)
    share = (unit / wavelengths * np.float32(length) - np.float32(low)) / np.float32(high - low)
    blended = (unit - share) * scaled / factor + share * scaled
    return np.where(~short & ~long, blended, scaled)


def _needed(rope: RopeConfig, field: str) -> float:
    value = getattr(rope, field)
    if value is None:
        raise ModelError(
            f"RoPE of kind {rope.kind}", got=f"no {field}", expected=f"a {field}", next_step="Check config.json"
        )
    return float(value)


def rope_stretch(rope: RopeConfig, head_dim: int) -> np.ndarray:
    """Divisor of each pair's frequency by scaling, float32 [head_dim / 2]: GGUF's `rope_freqs.weight`."""
    return rope_frequencies(rope.model_copy(update={"kind": "default"}), head_dim) / rope_frequencies(rope, head_dim)
