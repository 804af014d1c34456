# SPDX-License-Identifier: Apache-2.0
"""Guidance for the small bundle: codes and scales, where a server looks for them, and what their steps lead to by hand."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from small_bundle import CODE_BYTES, PIECES, initial_pieces
from tests.support.guidance_offer import offer as put_guidance

COLUMNS, PROBED = 2, 4.0  # and c' of a column
CODES, SCALE = "guidance.block_00.codes", "guidance.block_00.scales"
SCALES = np.array([0.5, 0.25], np.float32)


def codes(seed: int) -> np.ndarray:
    """Columns of codes from -7 to 7."""
    low, high = np.random.default_rng(seed).integers(1, 16, (2, CODE_BYTES, COLUMNS))
    return (low | high << 4).astype(np.uint8)


def offer(state: Path, adapter: str, seed: int, inside: float = 1.0, whole: float = 2.0) -> None:
    """Puts guidance for an adapter where a server looks."""
    put_guidance(state, adapter, {CODES: codes(seed), SCALE: SCALES}, inside=inside, whole=whole)


def column(seed: int, number: int) -> dict[str, np.ndarray]:
    """A column by piece, read code by code."""
    pieces, start = {}, 0
    for place, (name, shape) in enumerate(PIECES.items()):
        size = int(np.prod(shape))
        numbers = []
        for element in range(size):
            byte = int(codes(seed)[start + element // 2, number])
            numbers.append(((byte >> 4 if element % 2 else byte & 15) - 8) * float(SCALES[place]))
        pieces[name] = np.array(numbers, np.float32).reshape(shape)
        start += size // 2
    return pieces


def after(rounds: list[tuple[int, list[float]]]) -> str:
    """The hash of the adapter after these rounds, by the formula: the seed of each one's columns, and the step along each."""
    pieces = {name: piece.copy() for name, piece in initial_pieces().items()}
    for seed, steps in rounds:
        for number, step in enumerate(steps):
            for name, of in column(seed, number).items():
                pieces[name] = pieces[name] - np.float32(step) * of
    return hashlib.sha256(b"".join(pieces[name].tobytes() for name in sorted(pieces))).hexdigest()
