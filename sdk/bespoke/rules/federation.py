# SPDX-License-Identifier: Apache-2.0
"""Numbers of federated learning that all devices must agree on to the bit (`bespoke.methods.federated` has the formulas).

A step along a direction rounds once, in its subtraction, if its coefficient has at most 12 significant bits and a scale of guidance
at most 5. A server rounds both here before a device sees them.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bespoke.errors import DataError

__all__ = [
    "COEFFICIENT_BITS",
    "MOST_CODE",
    "SCALE_BITS",
    "Direction",
    "adapter_hash",
    "coefficients_of",
    "coefficients_text",
    "packed",
    "rounded",
]

COEFFICIENT_BITS = 12
SCALE_BITS = 5
MOST_CODE = 7  # of guidance: codes lie from -7 to 7


@dataclass(frozen=True)
class Direction:
    """Direction `number` of a round: coefficient z + guidance_coefficient G.

    seed, round: of its noise
    received:    the round's guidance by name (`packed`); empty: G is zero
    """

    seed: int
    round: int
    number: int
    coefficient: float = 1.0
    guidance_coefficient: float = 0.0
    received: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def scalars(self) -> dict[str, float]:
        """What a plan binds by name."""
        return {
            "direction": float(self.number),
            "coefficient": self.coefficient,
            "guidance_coefficient": self.guidance_coefficient,
        }


def adapter_hash(pieces: Mapping[str, np.ndarray]) -> str:
    """The sha256 by which devices and servers compare adapters: of the trained pieces, float32, in the order of their names."""
    digest = hashlib.sha256()
    for name in sorted(pieces):
        digest.update(np.ascontiguousarray(pieces[name], np.float32).tobytes())
    return digest.hexdigest()


def rounded(number: float, bits: int = COEFFICIENT_BITS) -> float:
    """The nearest number of so many significant bits, half to even."""
    mantissa, exponent = math.frexp(number)
    return math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)


def coefficients_text(coefficients: Sequence[float]) -> str:
    """Coefficients in base64, three bytes each: the upper three of a float32, the highest first.

    They are rounded to COEFFICIENT_BITS, so the byte that is left out is zero.
    """
    with np.errstate(over="ignore"):
        numbers = np.array([rounded(number) for number in coefficients], ">f4")
    if not np.isfinite(numbers).all():
        raise DataError(
            "coefficients",
            got="a number that float32 cannot hold",
            expected="finite numbers",
            next_step="Leave out the round, or lower its rate",
        )
    return base64.b64encode(numbers.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()).decode()


def coefficients_of(text: str) -> list[float]:
    """The coefficients that `coefficients_text` has written."""
    upper = np.frombuffer(base64.b64decode(text), np.uint8).reshape(-1, 3)
    whole = np.pad(upper, ((0, 0), (0, 1)))
    numbers: list[float] = whole.view(">f4").reshape(-1).tolist()
    return numbers


def packed(columns: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Codes and scales of the guidance of a block. `columns`: by piece, in the plan's order, float [m, ...].

    Returns uint8 [bytes, m] and float32 [pieces]. A piece has one scale, the least of SCALE_BITS bits by which no code passes
    MOST_CODE; codes round half to even.
    """
    codes, scales = [], []
    for piece in columns.values():
        flat = np.asarray(piece, np.float64).reshape(len(piece), -1)
        scale = _scale(float(np.abs(flat).max(initial=0.0)) / MOST_CODE)
        nibbles = np.zeros((len(flat), -(-flat.shape[1] // 2) * 2), np.uint8) + 8
        if scale:
            nibbles[:, : flat.shape[1]] = np.rint(flat / scale).astype(np.int8) + 8
        codes.append((nibbles[:, 0::2] | nibbles[:, 1::2] << 4).T)
        scales.append(scale)
    return np.ascontiguousarray(np.concatenate(codes)), np.array(scales, np.float32)


def _scale(least: float) -> float:
    """The least number of SCALE_BITS bits that is not below `least`."""
    mantissa, exponent = math.frexp(least)
    return math.ldexp(math.ceil(math.ldexp(mantissa, SCALE_BITS)), exponent - SCALE_BITS)
