# SPDX-License-Identifier: Apache-2.0
"""Guidance that a cloud offers to a server, and whether it goes on.

`bespoke federate guide` computes it and writes guidance/<sha256 of the adapter>.safetensors into the server's state: the files of a
round by name (`bespoke.rules.guidance.files_of`), and as metadata the squares that the guard compares with. The server checks
names, shapes and numbers, keeps each file by its sha256 and names it in the round that it signs. So all devices of a round read the
same bytes, and what they read stays in the server's state. A cloud that leads edges takes guidance in the same way.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from safetensors import SafetensorError, safe_open

from bespoke.bundle.federation_record import FederationRecord
from bespoke.errors import BundleError
from bespoke.rules.guidance import OFFERED, Guard, Squares
from bespoke.rules.round_documents import ReceivedFile
from bespoke_federated.adapter import Adapter, Received
from bespoke_federated.directions import Directions, guided, plain
from bespoke_federated.settings import RoundSettings
from bespoke_federated.whole_file import FILES, keep

__all__ = [
    "Opening",
    "check_bundle",
    "delete_other_offers",
    "faults_of_file",
    "faults_of_names",
    "kept_files",
    "opening_of",
]

NONE = Squares(0.0, 0.0)
_log = logging.getLogger("bespoke_federated")


class Opening(NamedTuple):
    """How a round opens. Without files it is a plain one."""

    measured: Directions
    files: tuple[ReceivedFile, ...] = ()
    public: Squares = NONE


class Guided(Protocol):
    """A round with guidance that has ended."""

    @property
    def number(self) -> int: ...

    @property
    def measured(self) -> Directions: ...

    @property
    def public(self) -> Squares: ...


class History(Protocol):
    """Where rounds and their numbers are kept."""

    folder: Path

    def guided_rounds(self, most: int) -> Sequence[Guided]:
        """The first rounds with guidance that have ended, in their order."""
        ...

    def numbers(self, number: int, /) -> Sequence[tuple[int, Sequence[float]]]:
        """(first direction, numbers) of each device that counts."""
        ...


class Offered(NamedTuple):
    """Guidance of a round: its files by name, and squares of public gradients that are not in it."""

    files: Mapping[str, np.ndarray]
    public: Squares


def check_bundle(initial: Adapter, federation: FederationRecord, settings: RoundSettings) -> None:
    """Raises BundleError where rounds are to have guidance that the bundle's devices cannot read."""
    if settings.guidance and not initial.steps.received:
        raise BundleError(
            "the bundle",
            got=f"method {federation.method} without guidance",
            expected="one with guidance_columns, since the settings ask for guidance",
            next_step="Build it with optimizers={'zgr': {'guidance_columns': 4}}, or run without --guidance",
        )
    if settings.guidance and settings.watchers and not initial.steps.probe:
        raise BundleError(
            "the bundle",
            got="directions that mix noise and guidance",
            expected="probe, since a guard compares numbers along columns with those along noise",
            next_step="Build it with optimizers={'zgr': {'guidance_columns': 4, 'probe': True}}, or without --watchers",
        )


def opening_of(
    store: History, adapter: Adapter, settings: RoundSettings, *, is_late: bool, servers: int = 1
) -> Opening | None:
    """How the next round opens at so many servers, its files kept in the state. None: it goes on waiting for guidance."""
    if not settings.guidance:
        return Opening(plain(settings, servers))
    guard = _guard_of(store, adapter, settings) if settings.watchers else None
    is_stopped = guard is not None and guard.stopped
    found = None if is_stopped else _offered(store.folder, adapter)
    if found is None:
        return Opening(plain(settings, servers)) if is_late or is_stopped else None
    measured = guided(settings, adapter, watched=guard is not None and not guard.judges, servers=servers)
    files = tuple(_kept(store.folder, name, array) for name, array in found.files.items())
    return Opening(measured, files, found.public)


def delete_other_offers(state: Path, adapter: Adapter) -> None:
    """Deletes guidance that was offered for other adapters: rounds have kept what they took of it."""
    for path in (state / OFFERED).glob("*.safetensors"):
        if path.stem != adapter.sha256:
            path.unlink(missing_ok=True)


def _kept(state: Path, name: str, array: np.ndarray) -> ReceivedFile:
    data = array.tobytes()
    return ReceivedFile(name=name, sha256=keep(state, data), size=len(data))


def kept_files(state: Path, files: Iterable[ReceivedFile], expected: Mapping[str, Received]) -> dict[str, np.ndarray]:
    """Guidance of a round by name, in arrays as the plan expects them."""
    arrays = {}
    for file in files:
        shape, dtype = expected[file.name]
        arrays[file.name] = np.fromfile(state / FILES / file.sha256, dtype).reshape(shape)
    return arrays


def _offered(state: Path, adapter: Adapter) -> Offered | None:
    """The guidance that lies there for this adapter. None: there is none, or none that fits, which the log says."""
    path = state / OFFERED / f"{adapter.sha256}.safetensors"
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
    yield from faults_of_names(found.keys(), expected)
    for name, array in found.items():
        yield from faults_of_file(name, array, expected)
    if not (0 <= public.inside <= public.whole < float("inf")):
        yield "squares of public gradients that are none"


def faults_of_names(names: Iterable[str], expected: Mapping[str, Received]) -> Iterator[str]:
    """What is wrong with the names of a round's files."""
    found = set(names)
    if not found or not found <= expected.keys():
        yield f"files {', '.join(sorted(found - expected.keys())) or 'none'}, and those of the plan were expected"
    partner = {"codes": "scales", "scales": "codes"}
    for name in sorted(found):
        head, _, kind = name.rpartition(".")
        if f"{head}.{partner.get(kind, kind)}" not in found:
            yield f"{name} stands alone"


def faults_of_file(name: str, array: np.ndarray, expected: Mapping[str, Received]) -> Iterator[str]:
    """What is wrong with a file of guidance."""
    shape, dtype = expected.get(name, ((), ""))
    if array.shape != shape or array.dtype != dtype:
        yield f"{name} is {array.dtype}{list(array.shape)} and not {dtype}{list(shape)}"
    elif array.dtype == np.uint8 and bool(((array & 15 == 0) | (array >> 4 == 0)).any()):
        yield f"{name} has codes of -8"
    elif array.dtype == np.float32 and not _are_scales(array):
        yield f"{name} has scales of more than 5 bits, negative ones or none"


def _are_scales(array: np.ndarray) -> bool:
    mantissas = np.frexp(array.astype(np.float64))[0] * 2**5
    return bool(np.isfinite(array).all() and (array >= 0).all() and (mantissas == np.floor(mantissas)).all())


def _guard_of(store: History, adapter: Adapter, settings: RoundSettings) -> Guard:
    """The guard as the guided rounds have left it. It rests on what is stored, so a restart changes nothing."""
    guard = Guard(adapter.steps.columns, settings.guard_least, trial=settings.guard_rounds)
    for row in store.guided_rounds(settings.guard_rounds):
        numbers = store.numbers(row.number)
        guard.add(_of_columns(row.measured, numbers), _watched(row.measured, numbers), row.public)
    return guard


def _of_columns(measured: Directions, numbers: Sequence[tuple[int, Sequence[float]]]) -> list[float]:
    """v_j . g, which devices send times c'."""
    return [of[0] / measured.guidance_coefficient for first, of in numbers if first < measured.moving]


def _watched(measured: Directions, numbers: Sequence[tuple[int, Sequence[float]]]) -> list[float]:
    return [of[0] for first, of in numbers if first >= measured.moving]
