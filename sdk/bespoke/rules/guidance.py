# SPDX-License-Identifier: Apache-2.0
"""Guidance as a cloud makes it, and when it stops: a basis of recent gradients on public data, its files, and its guard.

    V = the orthonormal columns that span the gradients, d x m                              V^T V = I
    share = m E[(v_j . g)^2] / E[(z . g)^2]    = |V^T g|^2 / |g|^2, since z has unit variance

Devices that measure columns (`probe`) send v_j . g, others send z . g: both means are known without anybody's gradient. m/d is the
share of a basis that has nothing to do with the gradient. What is much depends on the task and falls while it is learned. So the
guard compares with the share of public gradients that are not in the basis: devices whose data is of that kind have as much.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from bespoke.rules.federation import packed

__all__ = [
    "CHECKPOINT",
    "OFFERED",
    "Guard",
    "Squares",
    "basis_of",
    "files_of",
    "share_in_span",
    "squares_of",
    "unpacked",
]

# In a server's state: the adapter after the last round, in float32, and the folder where guidance for it is put.
CHECKPOINT, OFFERED = "checkpoint.safetensors", "guidance"
ROUNDING = 1e-5  # by so much gradients in float32 differ that should be equal

Shapes = Mapping[str, tuple[int, ...]]
"""Of the trained pieces by name, `block_00.q_proj.lora_B`, in the order of a plan."""


def basis_of(gradients: np.ndarray, columns: int) -> np.ndarray:
    """Orthonormal rows [m, d] that span the last `columns` of the gradients [n, d], each in the sense of its gradient.

    Gradients that add nothing but what they were rounded by leave rows of zeros.
    """
    recent = np.asarray(gradients, np.float64)[-columns:]
    basis = np.zeros((columns, recent.shape[1]))
    q, r = np.linalg.qr(recent.T)
    size = np.diag(r)
    kept = np.abs(size) > ROUNDING * max(float(np.abs(size).max(initial=0.0)), 1e-300)
    basis[: kept.sum()] = (q * np.sign(size)).T[kept]
    return basis


def files_of(basis: np.ndarray, shapes: Shapes) -> dict[str, np.ndarray]:
    """The files of a round's guidance by name: of each block the codes and the scales of its pieces."""
    files = {}
    for group, pieces in _blocks(basis, shapes).items():
        files[f"guidance.{group}.codes"], files[f"guidance.{group}.scales"] = packed(pieces)
    return files


def unpacked(files: Mapping[str, np.ndarray], shapes: Shapes) -> np.ndarray:
    """The basis as devices read it from these files, [m, d]."""
    parts = []
    columns = next(iter(files.values())).shape[1]
    for group, pieces in _blocks(np.zeros((columns, sum(map(math.prod, shapes.values())))), shapes).items():
        codes, start = files[f"guidance.{group}.codes"], 0
        for scale, piece in zip(files[f"guidance.{group}.scales"], pieces.values(), strict=True):
            size = math.prod(piece.shape[1:])
            pairs = codes[start : start + -(-size // 2)].astype(np.int16).T
            start += pairs.shape[1]
            nibbles = np.stack([pairs & 15, pairs >> 4], 2).reshape(columns, -1)[:, :size] - 8
            parts.append(nibbles * float(scale))
    return np.concatenate(parts, 1)


def _blocks(basis: np.ndarray, shapes: Shapes) -> dict[str, dict[str, np.ndarray]]:
    blocks: dict[str, dict[str, np.ndarray]] = {}
    start = 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape)
        blocks.setdefault(name.split(".", 1)[0], {})[name] = basis[:, start:stop].reshape(len(basis), *shape)
        start = stop
    return blocks


def share_in_span(of_columns: Sequence[float], of_noise: Sequence[float], columns: int) -> float:
    """The share of the devices' gradients in the span, from numbers v_j . g of m columns and numbers z . g. NaN: none came."""
    if not len(of_columns) or not len(of_noise):
        return math.nan
    whole = float(np.mean(np.square(of_noise)))
    return columns * float(np.mean(np.square(of_columns))) / whole if whole else math.nan


class Squares(NamedTuple):
    """Sums of squared lengths of gradients: of the part within the span of a basis, and of all."""

    inside: float
    whole: float


def squares_of(gradients: np.ndarray, basis: np.ndarray) -> Squares:
    """The squares of gradients [n, d] and a basis [m, d] that they are not in."""
    return Squares(float(np.sum((gradients @ basis.T) ** 2)), float(np.sum(gradients**2)))


class Guard:
    """Judges guidance once, after a trial: does its span hold as much of the devices' gradients as of other public ones?

    least:  of the share of public gradients, below which guidance stops
    trial:  rounds before it judges; until then some devices measure z
    window: the last rounds of them, to take means of
    """

    def __init__(self, columns: int, least: float, trial: int = 20, window: int = 10) -> None:
        self.columns, self.least, self.trial = columns, least, trial
        self._columns: deque[Sequence[float]] = deque(maxlen=window)
        self._noise: deque[Sequence[float]] = deque(maxlen=window)
        self._public: deque[Squares] = deque(maxlen=window)
        self.rounds = 0

    @property
    def share(self) -> float:
        """The share of the devices' gradients over the window."""
        return share_in_span([*chain(*self._columns)], [*chain(*self._noise)], self.columns)

    @property
    def public_share(self) -> float:
        """The share of public gradients over the window."""
        inside, whole = (sum(squares) for squares in zip(*self._public, strict=True))
        return inside / whole

    @property
    def judges(self) -> bool:
        """Whether the trial is over."""
        return self.rounds >= self.trial

    @property
    def stopped(self) -> bool:
        return self.judges and not self.share >= self.least * self.public_share

    def add(self, of_columns: Sequence[float], of_noise: Sequence[float], public: Squares) -> None:
        """Takes a round's numbers v_j . g and z . g, and the squares of public gradients that its basis was not made of."""
        assert not self.judges
        self.rounds += 1
        self._columns.append(of_columns)
        self._noise.append(of_noise)
        self._public.append(public)
