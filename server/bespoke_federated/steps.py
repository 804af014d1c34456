# SPDX-License-Identifier: Apache-2.0
"""The step of a round: from numbers to coefficients, from coefficients to the adapter, and all steps once more after a restart."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from bespoke.errors import DataError, StateError
from bespoke.format.tensors import map_tensors
from bespoke.rules.federation import coefficients_of, coefficients_text
from bespoke.rules.guidance import CHECKPOINT
from bespoke_federated.adapter import Adapter, Step, snapshot_of
from bespoke_federated.directions import Directions, step_along
from bespoke_federated.rows import StepTexts
from bespoke_federated.settings import RoundSettings
from bespoke_federated.whole_file import write_whole

__all__ = ["History", "Past", "combined", "restored", "taken"]

LEAST_NORMAL = 2.0**-126  # below it a float32 has fewer bits, and devices refuse a coefficient of three bytes
_log = logging.getLogger("bespoke_federated")


class Past(Protocol):
    """A round that has ended."""

    @property
    def number(self) -> int: ...

    @property
    def texts(self) -> StepTexts: ...

    @property
    def adapter(self) -> str | None: ...


Round = TypeVar("Round", bound=Past, covariant=True)


class History(Protocol[Round]):
    """Where rounds that have ended are kept."""

    folder: Path

    def round_after_which(self, adapter: str) -> Round | None: ...

    def ended_after(self, number: int, most: int) -> Sequence[Round]: ...

    def guidance_of(self, number: int) -> dict[str, np.ndarray]:
        """The guidance of a round by name, in arrays of the shapes that the plan has."""
        ...


def combined(
    numbers: Mapping[int, Sequence[float]],
    measured: Directions,
    settings: RoundSettings,
    *,
    half: bool,
    is_guided: bool = False,
) -> StepTexts:
    """The step that numbers by direction make. Of a direction that nobody measured it is zero."""
    directions = measured.groups * measured.each
    told = {number: of for number, of in numbers.items() if number < measured.moving * measured.each}
    coefficients, guided = [0.0] * directions, [0.0] * directions
    for along in step_along(told, measured, settings, is_guided=is_guided):
        coefficients[along.number] = _normal(along.coefficient)
        guided[along.number] = _normal(along.guidance_coefficient)
    try:
        of_guidance = coefficients_text(guided) if is_guided else None
        return StepTexts(coefficients_text(coefficients), of_guidance, half)
    except DataError:  # float32 cannot hold one of them
        return _nothing(directions, is_guided)


def taken(adapter: Adapter, texts: StepTexts, guidance: Mapping[str, np.ndarray]) -> tuple[Adapter, StepTexts]:
    """The adapter after a round, and what devices follow: a step that changes nothing where it would not be finite."""
    after = adapter.after(_step(texts, guidance))
    if not after.is_finite:
        texts = _nothing(len(coefficients_of(texts.coefficients)), texts.guided is not None)
        after = adapter.after(_step(texts, guidance))
    return after, texts


def restored(store: History[Past], adapter: Adapter, most: int, snapshot: Path | None = None) -> Adapter:
    """The adapter after the last round that has ended: the checkpoint, a snapshot or `adapter`, moved by the rounds behind it."""
    checkpoint = store.folder / CHECKPOINT  # of the last round, or of the one before it
    for path in (checkpoint, snapshot):
        if path is None or not path.exists():
            continue
        pieces = map_tensors(path, error=StateError)
        kept = {name: np.array(piece, np.float32) for name, piece in pieces.items()}
        if (row := store.round_after_which(adapter.restored(kept, 0).sha256)) is not None:
            adapter = adapter.restored(kept, row.number)
            break
    rows = store.ended_after(adapter.round, most)
    for row in rows:
        adapter = adapter.after(_step(row.texts, store.guidance_of(row.number)))
    if rows and adapter.sha256 != rows[-1].adapter:
        raise StateError(
            str(store.folder),
            got="rounds that lead to another adapter than they did",
            expected="the adapter of the last round",
            next_step="Restore the state from a copy",
        )
    if rows:  # whoever makes guidance reads the checkpoint
        write_whole(checkpoint, snapshot_of(adapter, half=False))
    return adapter


def _step(texts: StepTexts, guidance: Mapping[str, np.ndarray]) -> Step:
    guided = [] if texts.guided is None else coefficients_of(texts.guided)
    return Step(coefficients_of(texts.coefficients), texts.half, guided, guidance)


def _normal(coefficient: float) -> float:
    return coefficient if abs(coefficient) >= LEAST_NORMAL else 0.0


def _nothing(directions: int, is_guided: bool) -> StepTexts:
    """The step of a round that changes nothing, because float32 cannot hold what it would change."""
    _log.warning("a round changes nothing: numbers or rate are too large for float32")
    zeros = coefficients_text([0.0] * directions)
    return StepTexts(zeros, zeros if is_guided else None, half=False)
