# SPDX-License-Identifier: Apache-2.0
"""The rounds of a federation: opened, assigned to devices, combined, and followed by the server's own adapter.

A round ends in two transactions. The first one fixes its coefficients, and from then on its numbers are late. Then the adapter
takes the step. That may take seconds, while devices go on asking. The second one notes the adapter's hash and opens the next
round. A server that was killed between the two takes the same step again.

A round ends when enough numbers came, or at its deadline with at least the least number of devices. With fewer the deadline
begins again, and other devices are asked in place of those that did not answer. The deadline runs on a clock that nobody sets.
Only across a restart it rests on the calendar. A clock that jumped can end or delay it by one deadline then.

Files of rounds long before the newest snapshot are deleted. A device that still wants one hears that it is gone. It asks again and
starts from the snapshot.

A round with guidance waits until a cloud has offered some for its adapter (`guidance.py`). If none comes in time, or the guard has
stopped it, the round is a plain one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from bespoke.bundle.federation_record import FederationRecord
from bespoke.rules.guidance import CHECKPOINT
from bespoke.rules.one_sided import REMEMBERED, always_outer, outer_shares
from bespoke.rules.privacy import rho_of
from bespoke.rules.round_documents import DeviceDocument, Measurement
from bespoke_federated.adapter import Adapter, snapshot_of
from bespoke_federated.clock import Clock
from bespoke_federated.directions import plain
from bespoke_federated.guidance import delete_other_offers, opening_of
from bespoke_federated.metrics import Metrics
from bespoke_federated.numbers import verdict
from bespoke_federated.rows import Assignment, KeptFile, RoundRow, StepTexts
from bespoke_federated.settings import RoundSettings
from bespoke_federated.steps import combined, restored, taken
from bespoke_federated.store import Store
from bespoke_federated.whole_file import FILES, keep, write_whole

__all__ = ["Rounds", "Share"]

ROUNDING = 1e-9  # sums of costs are not exact
KEPT_ROUNDS = 32  # before the newest snapshot, whose files stay: devices may have a document that names them
_log = logging.getLogger("bespoke_federated")


class Share(NamedTuple):
    """What this server asks its devices for in a round: groups of directions, and of how many devices."""

    groups: Sequence[int]
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
        self._look_wanted = self._snapshot_wanted = False
        store.belongs_to({"task": federation.task, "adapter": self.initial_sha256, "seed": str(federation.seed)})
        store.shapes_of_guidance = initial.steps.received
        newest = store.newest_snapshot()
        self.adapter = restored(store, initial, settings.rounds, newest and store.folder / newest.path)
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
        coefficient, of_guidance = round.measured.of_group(assignment.first)
        asked = Measurement(
            round=round.number,
            first=assignment.first,
            count=assignment.directions,
            coefficient=coefficient,
            guidance_coefficient=of_guidance,
            files=round.guidance if of_guidance else (),
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
        """Ends the open round or opens the waiting one if it is time to. One thread at a time does so, and looks again for those
        that came meanwhile."""
        self._look_wanted = True
        while self._look_wanted and self._ending.acquire(blocking=False):
            try:
                self._look_wanted = False  # before it looks: numbers that come from here on want another look
                self._advance_once()
            finally:
                self._ending.release()

    def _advance_once(self) -> None:
        with self._store.transaction():
            self._combine_if_due()
        self._end_combined()
        self._open_waiting()
        if self._snapshot_wanted:
            self._make_snapshot_of_now()

    def _combine_if_due(self) -> None:
        round = self._store.last_round()
        if round is None or round.state != "open":
            return
        came, is_late = self._store.number_count(round.number), self._clock.running() >= self._due
        if came >= self.settings.devices or (is_late and came >= self.settings.least_devices):
            self._store.combine_round(round.number, self._combined(round))
        elif is_late:
            self._store.extend_round(round.number, self._clock.calendar())
            self._due = self._clock.running() + self.settings.deadline_seconds

    def _combined(self, round: RoundRow) -> StepTexts:
        by_direction: dict[int, list[float]] = {}
        for first, numbers in self._counted(round.number, compared=self.settings.combine != "mean"):
            for direction, number in enumerate(numbers, first):
                by_direction.setdefault(direction, []).append(number)
        half = self.settings.is_half(round.number)
        return combined(by_direction, round.measured, self.settings, half=half, is_guided=bool(round.guidance))

    def _counted(self, number: int, *, compared: bool) -> list[tuple[int, list[float]]]:
        """(first direction, numbers) of each device that has a part in a round's step.

        `compared`: without those whose numbers always lie at an end. Call it within a transaction of the store.
        """
        came = self._store.numbers_by_device(number)
        if not compared:
            return list(came.values())
        shares = zip(came, outer_shares(list(came.values())), strict=True)
        self._store.note_outer_shares(number, {device: share for device, share in shares if share is not None})
        left_out = {device for device in came if always_outer(self._store.outer_shares(device, REMEMBERED))}
        if left_out:
            _log.info(
                "round %d: the numbers of %d devices always lie at an end and are left out", number, len(left_out)
            )
        return [numbers for device, numbers in came.items() if device not in left_out]

    def _end_combined(self) -> None:
        """Takes the step of a round whose coefficients are fixed, and opens the next one."""
        round = self._store.last_round()
        if round is None or round.state != "combined" or round.coefficients is None:
            return
        adapter, texts = taken(self.adapter, round.texts, self._store.guidance_of(round.number))
        self._check_step(adapter)
        added = len(texts.coefficients) + sum(file.size for file in round.guidance)
        worth_it = texts.half or self._is_behind_by_more_than(adapter.nbytes, added)
        file = self._snapshot(adapter, half=texts.half) if worth_it else None
        with self._store.transaction():
            self._store.end_round(round.number, texts, adapter.sha256, self._clock.calendar())
            superseded = self._add_snapshot(file) if file else []
            self._go_on()
        self.adapter = adapter
        write_whole(self._store.folder / CHECKPOINT, snapshot_of(adapter, half=False))
        self._delete(superseded)
        delete_other_offers(self._store.folder, adapter)
        _log.info("round %d has ended", round.number)

    def _check_step(self, adapter: Adapter) -> None:
        """Raises StateError where a step leads elsewhere than it should. Here nobody else has taken it."""

    def _go_on(self) -> None:
        """Adds the next round, if the last one has ended and the task has one more. With guidance it waits at first."""
        last = self._store.last_round()
        if last is None or (last.state == "ended" and last.number < self.settings.rounds):  # or the task became longer
            state: Literal["waiting", "open"] = "waiting" if self.settings.guidance else "open"
            number = last.number + 1 if last else 1
            self._store.add_round(number, state, plain(self.settings), self._clock.calendar())
            self._due = self._clock.running() + self._patience(state)

    def _share(self, round: RoundRow) -> Share:
        return Share(range(round.measured.groups), self.settings.devices)

    def _patience(self, state: str) -> float:
        """Seconds until a round in this state is due."""
        return self.settings.guidance_wait_seconds if state == "waiting" else self.settings.deadline_seconds

    def _open_waiting(self) -> None:
        """Opens the round that waits for guidance, if some came or none is waited for any more."""
        round = self._store.last_round()
        if round is None or round.state != "waiting":
            return
        is_late = self._clock.running() >= self._due
        opening = opening_of(self._store, self.adapter, self.settings, is_late=is_late)
        if opening is None:
            return
        with self._store.transaction():
            self._store.open_waiting(round.number, opening, self._clock.calendar())
        _log.info("round %d has guidance: %s", round.number, ", ".join(file.sha256 for file in opening.files) or "none")
        self._due = self._clock.running() + self._patience("open")

    def _free(self, round: RoundRow) -> Assignment | None:
        """The directions that the fewest devices measure. None: enough devices are at it."""
        share, at_it = self._share(round), self._store.taken_groups(round.number, round.extensions)
        if sum(at_it.values()) >= share.devices:
            return None
        each = round.measured.each
        group = min(share.groups, key=lambda number: at_it.get(number * each, 0))
        return Assignment(group * each, each)

    def _due_after_restart(self) -> float:
        """When the open round is due, on the running clock: the calendar says how much of its deadline has passed."""
        round = self._store.last_round()
        passed = self._clock.calendar() - round.started if round else 0.0
        left = self._patience(round.state if round else "open") - max(0.0, passed)
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
                superseded = self._add_snapshot(file)
            self._delete(superseded)

    def _add_snapshot(self, file: KeptFile) -> list[KeptFile]:
        """Notes a snapshot. Returns files that no device needs any more."""
        self._store.add_file(file)
        return self._store.drop_files_up_to(file.round - KEPT_ROUNDS)

    def _delete(self, files: Iterable[KeptFile]) -> None:
        for file in files:
            (self._store.folder / file.path).unlink(missing_ok=True)

    def _snapshot(self, adapter: Adapter, *, half: bool) -> KeptFile:
        """Writes a snapshot, which is on the disk before any row names it."""
        data = snapshot_of(adapter, half=half)
        sha256 = keep(self._store.folder, data)
        return KeptFile(sha256, len(data), f"{FILES}/{sha256}", "snapshot", adapter.round, half)
