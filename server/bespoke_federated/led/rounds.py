# SPDX-License-Identifier: Apache-2.0
"""Rounds that a cloud opens and ends. Between the two this edge collects numbers, as any server does.

A round goes through four states here:

    open      numbers count; devices are asked until the edge's share of them has answered
    closed    numbers are late, and what came stays the same: enough came, or the cloud has said so
    fixed     the cloud's coefficients are known
    ended     the step is taken, and the adapter is the one that the cloud has

Each change is one transaction. An edge that was killed goes on with the one that is on the disk, and gives the same answers.

A round with guidance needs files (`led/guidance.py`). Where some are missing the edge says so, and goes on when they have come.
"""

from __future__ import annotations

import math

from bespoke.bundle.federation_record import FederationRecord
from bespoke.errors import StateError
from bespoke.rules.round_documents import MAX_ROUND
from bespoke_federated.adapter import Adapter
from bespoke_federated.clock import Clock
from bespoke_federated.directions import Span
from bespoke_federated.guidance import Opening
from bespoke_federated.led.documents import Collected, Ended, Layout, Numbers, Opened, Order, Standing
from bespoke_federated.led.guidance import came_with, check_kept, opening_of_layout
from bespoke_federated.led.store import LedStore
from bespoke_federated.metrics import Metrics
from bespoke_federated.problems import RequestError, problem
from bespoke_federated.rounds import Rounds, Share
from bespoke_federated.rows import RoundRow
from bespoke_federated.settings import RoundSettings
from bespoke_federated.whole_file import FILES, keep

__all__ = ["LedRounds"]

_refused = problem(409, "the cloud's order")


class LedRounds(Rounds):
    """The rounds of an edge that is led."""

    _store: LedStore

    def __init__(
        self,
        store: LedStore,
        initial: Adapter,
        federation: FederationRecord,
        settings: RoundSettings,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """`settings`: of them only those that say how long something takes. The cloud decides the others."""
        endless = settings.model_copy(update={"rounds": MAX_ROUND})
        super().__init__(store, initial, federation, endless, clock, metrics)

    @property
    def done(self) -> bool:
        rounds, last = self._store.rounds_of_task(), self._store.last_ended()
        return rounds is not None and last is not None and last.number >= rounds

    def obey(self, order: Order) -> Standing:
        """Follows what has ended, opens what is open, closes it if it should. Then tells what came of it.

        Raises RequestError for what cannot be: another bundle, files that do not fit, or rounds that went otherwise here.
        """
        self._check(order)
        files = came_with(order, self.adapter.steps.received)
        with self._ending:
            for data in files:
                keep(self._store.folder, data)
            if self._store.rounds_of_task() != order.rounds:
                self._store.set_rounds_of_task(order.rounds)
            lacking: tuple[str, ...] = ()
            for ended in order.ended:
                if lacking := self._lacking(ended):
                    break
                self._follow(ended)
            with self._store.transaction():
                if order.opened is not None and not (lacking := lacking or self._lacking(order.opened)):
                    self._open_led(order.opened)
                    if order.close:
                        self._store.close_round(order.opened.number)
                self._combine_if_due()
                return self._standing(order, lacking)

    def _lacking(self, layout: Layout) -> tuple[str, ...]:
        """Files of a round that are not here yet. A file is there whole or not at all."""
        names = dict.fromkeys(file.sha256 for file in opening_of_layout(layout).files)
        return tuple(sha256 for sha256 in names if not (self._store.folder / FILES / sha256).exists())

    def _check(self, order: Order) -> None:
        if order.task != self.federation.task or order.initial != self.initial_sha256:
            raise _refused(
                "one for another bundle", "one for the bundle of this edge", "Serve the bundle that the cloud has"
            )

    def _follow(self, ended: Ended) -> None:
        """Takes the step of a round that the cloud has ended, unless it is taken."""
        row = self._store.round(ended.number)
        if row is not None and row.state == "ended":
            if row.adapter != ended.adapter:
                raise _otherwise(ended.number)
            return
        with self._store.transaction():
            row = self._store.round(ended.number)
            if row is None:  # it went by while this edge was away
                self._check_next(ended.number)
                self._add(ended.number, opening_of_layout(ended))
            elif not _is(row, opening_of_layout(ended)):
                raise _otherwise(ended.number)
            self._store.fix_round(ended)
        self._end_combined()

    def _open_led(self, opened: Opened) -> None:
        row, opening = self._store.round(opened.number), opening_of_layout(opened)
        if row is None:
            self._check_next(opened.number)
            span = Span(opened.first_group, opened.own_groups, opened.first_watched, opened.own_watched)
            if not span.is_of(opening.measured):
                raise _refused("a share that is not in the round", "one of its groups", "Ask who runs the cloud")
            self._add(opened.number, opening)
            self._store.add_share(opened.number, span, opened.devices)
            self._due = self._clock.running() + self.settings.deadline_seconds
        elif row.state == "ended" or not _is(row, opening):
            raise _otherwise(opened.number)

    def _add(self, number: int, opening: Opening) -> None:
        check_kept(self._store.folder, opening.files, self.adapter.steps.received)
        self._store.add_led(number, opening, self._clock.calendar())

    def _check_next(self, number: int) -> None:
        last = self._store.last_round()
        if number != (last.number if last else 0) + 1 or (last is not None and last.state != "ended"):
            at = f"round {last.number if last else 0}"
            raise _refused(f"round {number}", f"what follows {at}, where this edge is", "Send the rounds in between")

    def _standing(self, order: Order, lacking: tuple[str, ...]) -> Standing:
        last, ended = self._store.last_round(), self._store.last_ended()
        number = ended.number if ended else 0
        waiting = last is not None and last.state != "ended" and last.coefficients is None
        return Standing(
            edge=self._store.edge,
            ended=number,
            adapter=self.adapter_after(number),
            most_rounds=self._store.totals()["most_rounds"],
            collected=self._collected(last, order) if last is not None and waiting else None,
            lacking=lacking,
        )

    def _collected(self, round: RoundRow, order: Order) -> Collected:
        devices, closed = self._store.number_count(round.number), round.state != "open"
        if not closed:
            return Collected(round=round.number, devices=devices, closed=False)
        came = self._counted(round.number, compared=order.compared)
        if order.each_number:
            numbers = tuple(Numbers(first=first, numbers=tuple(found)) for first, found in came)
            return Collected(round=round.number, devices=devices, closed=True, numbers=numbers)
        (moving, _), each = self._span(round).ranges, round.measured.each
        first = moving.start * each
        by_direction: list[list[float]] = [[] for _ in range(len(moving) * each)]
        for start, found in came:
            if start < moving.stop * each:  # of z that is only watched there is no sum
                for place, one in enumerate(found, start - first):
                    by_direction[place].append(one)
        return Collected(
            round=round.number,
            devices=devices,
            closed=True,
            first=first,
            counts=tuple(map(len, by_direction)),
            sums=tuple(map(math.fsum, by_direction)),
        )

    # Where a server that decides for itself does otherwise

    def _combine_if_due(self) -> None:
        """Closes the open round once its share of devices has answered. At the deadline others are asked too."""
        round = self._store.last_round()
        if round is None or round.state != "open":
            return
        if self._store.number_count(round.number) >= self._share(round).devices:
            self._store.close_round(round.number)
        elif self._clock.running() >= self._due:
            self._store.extend_round(round.number, self._clock.calendar())
            self._due = self._clock.running() + self.settings.deadline_seconds

    def _check_step(self, adapter: Adapter) -> None:
        expected = self._store.expected_after(adapter.round)
        if expected is not None and adapter.sha256 != expected:
            raise StateError(
                str(self._store.folder),
                got=f"another adapter after round {adapter.round} than the cloud has",
                expected="the same one",
                next_step="Serve the bundle that the cloud has, with an empty state",
            )

    def _go_on(self) -> None:
        """The cloud opens rounds."""

    def _share(self, round: RoundRow) -> Share:
        _, devices = self._store.share(round.number) or (None, 0)
        moving, watched = self._span(round).ranges
        return Share([*moving, *watched], devices)

    def _span(self, round: RoundRow) -> Span:
        span, _ = self._store.share(round.number) or (Span(0, 0), 0)
        return span


def _is(row: RoundRow, opening: Opening) -> bool:
    """Whether a round has the directions and the guidance that the cloud says."""
    return (row.measured, row.guidance) == (opening.measured, opening.files)


def _otherwise(number: int) -> RequestError:
    return _refused(
        f"a round {number} that went otherwise here",
        "the rounds of this edge's cloud",
        "Lead it with that cloud's state",
    )
