# SPDX-License-Identifier: Apache-2.0
"""The rounds of a federation: opened, assigned to devices, combined, and followed by the server's own adapter.

A round ends in two transactions. The first one fixes its coefficients, and from then on its numbers are late. Then the adapter
takes the step. That may take seconds, while devices go on asking. The second one notes the adapter's hash and opens the next
round. A server that was killed between the two takes the same step again.

A round ends when enough numbers came, or at its deadline with at least the least number of devices. With fewer the deadline
begins again, and other devices are asked in place of those that did not answer. The deadline runs on a clock that nobody sets.
Only across a restart it rests on the calendar. A clock that jumped can end or delay it by one deadline then.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from bespoke.bundle.federation_record import FederationRecord
from bespoke.errors import DataError, StateError
from bespoke.format.tensors import map_tensors
from bespoke.rules.aggregation import step_of
from bespoke.rules.federation import coefficients_of, coefficients_text
from bespoke.rules.privacy import rho_of
from bespoke.rules.round_documents import DeviceDocument, Measurement
from bespoke_federated.adapter import Adapter, snapshot_of
from bespoke_federated.clock import Clock
from bespoke_federated.metrics import Metrics
from bespoke_federated.numbers import verdict
from bespoke_federated.settings import RoundSettings
from bespoke_federated.store import FILES, Assignment, KeptFile, RoundRow, Store

__all__ = ["CHECKPOINT", "Rounds", "Share", "combined_coefficients", "restored", "step", "write_file"]

CHECKPOINT = "checkpoint.safetensors"  # the adapter after the last round, in float32
LEAST_NORMAL = 2.0**-126  # below it a float32 has fewer bits, and devices refuse a coefficient of three bytes
ROUNDING = 1e-9  # sums of costs are not exact
_log = logging.getLogger("bespoke_federated")


class Past(Protocol):
    """A round that has ended."""

    @property
    def number(self) -> int: ...

    @property
    def coefficients(self) -> str | None: ...

    @property
    def half(self) -> bool: ...

    @property
    def adapter(self) -> str | None: ...


class History(Protocol):
    """Where rounds that have ended are kept."""

    folder: Path

    def round_after_which(self, adapter: str) -> Past | None: ...

    def ended_after(self, number: int, most: int) -> Sequence[Past]: ...


class Share(NamedTuple):
    """What this server asks its devices for in a round: groups of directions, and of how many devices."""

    groups: range
    devices: int


class Rounds:
    """The rounds of a state folder. `adapter` is the one after the last round that has ended."""

    def __init__(
        self,
        store: Store,
        initial: Adapter,
        federation: FederationRecord,
        settings: RoundSettings,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        settings.check()
        self.initial_sha256 = initial.sha256
        self.federation, self.settings = federation, settings
        self._store, self._clock, self._metrics = store, clock, metrics
        self._ending = threading.Lock()  # one thread at a time takes a round's step
        self._snapshot_wanted = False
        store.belongs_to({"task": federation.task, "adapter": self.initial_sha256, "seed": str(federation.seed)})
        self.adapter = restored(store, initial, settings.rounds)
        self._end_combined()
        with store.transaction():
            self._go_on()
        self._due = self._due_after_restart()

    @property
    def done(self) -> bool:
        """Whether the last round of the task has ended."""
        last = self._store.last_ended()
        return last is not None and last.number >= self.settings.rounds

    # What a device's request changes. Call these within a transaction of the store.

    def take(self, device: str, document: DeviceDocument) -> tuple[int, ...]:
        """Keeps a device's numbers. Returns the rounds of all of them: what does not count is not wanted again either."""
        for sent in document.numbers:
            known = self._store.has_numbers(sent.round, device)
            round, assignment = self._store.round(sent.round), self._store.assignment(sent.round, device)
            found = verdict(sent, round, assignment, known, self.federation)
            if found in ("counts", "late"):
                self._store.add_numbers(sent.round, device, sent.first, sent.numbers, late=found == "late")
            if found != "counts":
                self._metrics.refused(found)
        return tuple(sorted({sent.round for sent in document.numbers}))

    def asked_of(self, device: str) -> tuple[Measurement, bool] | None:
        """What a device that is up to date should measure, and whether it was asked for that before. None: nothing."""
        round = self._store.last_round()
        if round is None or round.state != "open" or self._store.has_numbers(round.number, device):
            return None
        if not self.can_pay(device):
            return None
        assignment = self._store.assignment(round.number, device)
        again = assignment is not None
        if assignment is None:
            assignment = self._free(round)
            if assignment is None:
                return None
            self._store.assign(round.number, device, assignment, round.extensions)
        asked = Measurement(
            round=round.number,
            first=assignment.first,
            count=assignment.directions,
            coefficient=1.0,
            guidance_coefficient=0.0,
            files=(),
            adapter=self.adapter_after(round.number - 1),
        )
        return asked, again

    def adapter_after(self, number: int) -> str:
        """The hash of the adapter after a round that has ended; 0: before the first one."""
        row = self._store.round(number) if number else None
        return self.initial_sha256 if row is None or row.adapter is None else row.adapter

    def want_snapshot(self) -> None:
        """Asks for a snapshot of the adapter as it is, at the next `advance`."""
        self._snapshot_wanted = True

    def can_pay(self, device: str) -> bool:
        """Whether the bundle's budget has room for one more round of this device."""
        if self.federation.budget is None:
            return True
        spent = rho_of([self.federation.noise] * (self._store.rounds_told_by(device) + 1))
        return spent <= self.federation.budget * (1 + ROUNDING)

    # What time and numbers change

    def advance(self) -> None:
        """Ends the open round if it is time to. Another thread that is at it already does it alone."""
        if not self._ending.acquire(blocking=False):
            return
        try:
            with self._store.transaction():
                self._combine_if_due()
            self._end_combined()
            if self._snapshot_wanted:
                self._make_snapshot_of_now()
        finally:
            self._ending.release()

    def _combine_if_due(self) -> None:
        round = self._store.last_round()
        if round is None or round.state != "open":
            return
        came, is_late = self._store.number_count(round.number), self._clock.running() >= self._due
        if came >= self.settings.devices or (is_late and came >= self.settings.least_devices):
            half = bool(self.settings.half_every) and round.number % self.settings.half_every == 0
            self._store.combine_round(round.number, self._combined(round), half)
        elif is_late:
            self._store.extend_round(round.number, self._clock.calendar())
            self._due = self._clock.running() + self.settings.deadline_seconds

    def _combined(self, round: RoundRow) -> str:
        """The coefficients of a round's directions as text. Of a direction that nobody measured it is zero."""
        by_direction: dict[int, list[float]] = {}
        for first, numbers in self._store.numbers(round.number):
            for place, number in enumerate(numbers):
                by_direction.setdefault(first + place, []).append(number)
        return combined_coefficients(by_direction, round.directions, self.settings)

    def _end_combined(self) -> None:
        """Takes the step of a round whose coefficients are fixed, and opens the next one."""
        round = self._store.last_round()
        if round is None or round.state != "combined" or round.coefficients is None:
            return
        adapter, coefficients, half = step(self.adapter, round.coefficients, half=round.half)
        self._check_step(adapter)
        worth_it = half or self._is_behind_by_more_than(adapter.nbytes, len(coefficients))
        file = self._snapshot(adapter, half=half) if worth_it else None
        with self._store.transaction():
            self._store.end_round(round.number, coefficients, half, adapter.sha256, self._clock.calendar())
            if file:
                self._store.add_file(file)
            self._go_on()
        self.adapter = adapter
        self._due = self._clock.running() + self.settings.deadline_seconds
        write_file(self._store.folder / CHECKPOINT, snapshot_of(adapter, half=False))
        _log.info("round %d has ended", round.number)

    def _check_step(self, adapter: Adapter) -> None:
        """Raises StateError where a step leads elsewhere than it should. Here nobody else has taken it."""

    def _go_on(self) -> None:
        """Opens the next round, if the last one has ended and the task has one more."""
        last = self._store.last_round()
        if last is None or (last.state == "ended" and last.number < self.settings.rounds):  # or the task became longer
            number = last.number + 1 if last else 1
            self._store.open_round(number, self.settings.groups, self.settings.directions, self._clock.calendar())

    def _share(self, round: RoundRow) -> Share:
        return Share(range(round.groups), self.settings.devices)

    def _free(self, round: RoundRow) -> Assignment | None:
        """The directions that the fewest devices measure. None: enough devices are at it."""
        share, taken = self._share(round), self._store.taken_groups(round.number, round.extensions)
        if sum(taken.values()) >= share.devices:
            return None
        group = min(share.groups, key=lambda number: taken.get(number * round.each, 0))
        return Assignment(group * round.each, round.each)

    def _due_after_restart(self) -> float:
        """When the open round is due, on the running clock: the calendar says how much of its deadline has passed."""
        round = self._store.last_round()
        passed = self._clock.calendar() - round.started if round else 0.0
        left = self.settings.deadline_seconds - max(0.0, passed)
        return self._clock.running() + max(0.0, left)

    # Snapshots

    def _is_behind_by_more_than(self, size: int, added: int) -> bool:
        """Whether the rounds behind the last snapshot, with those that are added, are more to send than so many bytes."""
        newest = self._store.newest_snapshot()
        return self._store.coefficient_bytes_after(newest.round if newest else 0) + added > size

    def _make_snapshot_of_now(self) -> None:
        self._snapshot_wanted = False
        last, newest = self._store.last_ended(), self._store.newest_snapshot()
        if last is not None and (newest is None or newest.round < last.number):
            file = self._snapshot(self.adapter, half=last.half)
            with self._store.transaction():
                self._store.add_file(file)

    def _snapshot(self, adapter: Adapter, *, half: bool) -> KeptFile:
        """Writes a snapshot, which is on the disk before any row names it."""
        data = snapshot_of(adapter, half=half)
        sha256 = hashlib.sha256(data).hexdigest()
        write_file(self._store.folder / FILES / sha256, data)
        return KeptFile(sha256, len(data), f"{FILES}/{sha256}", adapter.round, half)


def combined_coefficients(numbers: Mapping[int, Sequence[float]], directions: int, settings: RoundSettings) -> str:
    """The coefficients of a round's directions as text, from numbers by direction. Where nobody measured it is zero."""
    coefficients = [0.0] * directions
    rate = settings.rate / max(1, len(numbers))
    for along in step_of(numbers, rate, combine=settings.combine):
        coefficients[along.number] = along.coefficient if abs(along.coefficient) >= LEAST_NORMAL else 0.0
    try:
        return coefficients_text(coefficients)
    except DataError:  # float32 cannot hold one of them
        return _nothing(directions)


def step(adapter: Adapter, coefficients: str, *, half: bool) -> tuple[Adapter, str, bool]:
    """The adapter after the next round, and what devices follow: coefficients that change nothing where it would not be finite."""
    after = adapter.after(coefficients_of(coefficients), half=half)
    if not after.is_finite:
        coefficients, half = _nothing(len(coefficients_of(coefficients))), False
        after = adapter.after(coefficients_of(coefficients), half=half)
    return after, coefficients, half


def restored(store: History, adapter: Adapter, most: int) -> Adapter:
    """The adapter after the last round that has ended: the checkpoint or `adapter`, moved by the rounds behind it."""
    checkpoint = store.folder / CHECKPOINT
    if checkpoint.exists():  # of the last round, or of the one before it
        pieces = map_tensors(checkpoint, error=StateError)
        kept = {name: np.array(piece) for name, piece in pieces.items()}
        if (row := store.round_after_which(adapter.restored(kept, 0).sha256)) is not None:
            adapter = adapter.restored(kept, row.number)
    rows = store.ended_after(adapter.round, most)
    for row in rows:
        adapter = adapter.after(coefficients_of(row.coefficients or ""), half=row.half)
    if rows and adapter.sha256 != rows[-1].adapter:
        raise StateError(
            str(store.folder),
            got="rounds that lead to another adapter than they did",
            expected="the adapter of the last round",
            next_step="Restore the state from a copy",
        )
    return adapter


def _nothing(directions: int) -> str:
    """The coefficients of a round that changes nothing, because float32 cannot hold what it would change."""
    _log.warning("a round changes nothing: numbers or rate are too large for float32")
    return coefficients_text([0.0] * directions)


def write_file(path: Path, data: bytes) -> None:
    """Writes a file that is there whole or not at all."""
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
