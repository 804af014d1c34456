# SPDX-License-Identifier: Apache-2.0
"""Guidance that a cloud offers to a server, and whether it goes on.

`bespoke federate guide` computes it and writes guidance/<sha256 of the adapter>.safetensors into the server's state: the files of a
round by name (`bespoke.rules.guidance.files_of`), and as metadata the squares that the guard compares with. The server checks
names, shapes and numbers, keeps each file by its sha256 and names it in the round that it signs. So all devices of a round read the
same bytes, and what they read stays in the server's state.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from bespoke.rules.guidance import Guard, Squares
from bespoke_federated.adapter import Adapter
from bespoke_federated.rows import RoundRow
from bespoke_federated.settings import RoundSettings
from bespoke_federated.store import Store

__all__ = ["GUIDANCE", "Offered", "guard_of", "offered"]

GUIDANCE = "guidance"  # in the state's folder
_log = logging.getLogger("bespoke_federated")


class Offered(NamedTuple):
    """Guidance of a round: its files by name, and squares of public gradients that are not in it."""

    files: Mapping[str, np.ndarray]
    public: Squares


def offered(state: Path, adapter: Adapter) -> Offered | None:
    """The guidance that lies there for this adapter. None: there is none, or none that fits, which the log says."""
    path = state / GUIDANCE / f"{adapter.sha256}.safetensors"
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as file:
            found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (no mapping)
            given = json.loads((file.metadata() or {})["public"])
        public = Squares(float(given["inside"]), float(given["whole"]))
    except (SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
        _log.error("%s is no guidance: %s", path.name, type(error).__name__)
        return None
    for fault in _faults(found, public, adapter):
        _log.error("%s does not fit: %s", path.name, fault)
        return None
    return Offered(found, public)


def _faults(found: Mapping[str, np.ndarray], public: Squares, adapter: Adapter) -> Iterator[str]:
    """What keeps devices from reading these files, or all from computing the same with them."""
    expected = adapter.steps.received
    if not found or not found.keys() <= expected.keys():
        yield f"files {', '.join(sorted(found.keys() - expected.keys())) or 'none'}, and those of the plan were expected"
    for name, array in found.items():
        shape, dtype = expected.get(name, ((), ""))
        if array.shape != shape or array.dtype != dtype:
            yield f"{name} is {array.dtype}{list(array.shape)} and not {dtype}{list(shape)}"
        elif array.dtype == np.uint8 and bool(((array & 15 == 0) | (array >> 4 == 0)).any()):
            yield f"{name} has codes of -8"
        elif array.dtype == np.float32 and not _are_scales(array):
            yield f"{name} has scales of more than 5 bits, negative ones or none"
    partner = {"codes": "scales", "scales": "codes"}
    for name in found:
        head, _, kind = name.rpartition(".")
        if f"{head}.{partner.get(kind, kind)}" not in found:
            yield f"{name} stands alone"
    if not (0 <= public.inside <= public.whole < float("inf")):
        yield "squares of public gradients that are none"


def _are_scales(array: np.ndarray) -> bool:
    mantissas = np.frexp(array.astype(np.float64))[0] * 2**5
    return bool(np.isfinite(array).all() and (array >= 0).all() and (mantissas == np.floor(mantissas)).all())


def guard_of(store: Store, adapter: Adapter, settings: RoundSettings) -> Guard:
    """The guard as the guided rounds have left it. It rests on what is stored, so a restart changes nothing."""
    guard = Guard(adapter.steps.columns, settings.guard_least, trial=settings.guard_rounds)
    for row in store.guided_rounds(settings.guard_rounds):
        numbers = store.numbers(row.number)
        guard.add(_of_columns(row, numbers), _watched(row, numbers), row.public)
    return guard


def _of_columns(row: RoundRow, numbers: Sequence[tuple[int, list[float]]]) -> list[float]:
    """v_j . g, which devices send times c'."""
    least = row.measured.groups - row.measured.watched
    return [of[0] / row.measured.guidance_coefficient for first, of in numbers if first < least]


def _watched(row: RoundRow, numbers: Sequence[tuple[int, list[float]]]) -> list[float]:
    least = row.measured.groups - row.measured.watched
    return [of[0] for first, of in numbers if first >= least]
