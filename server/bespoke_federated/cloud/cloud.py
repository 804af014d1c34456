# SPDX-License-Identifier: Apache-2.0
"""Leads the edges of a task. How orders travel is a carrier's business: Flower's, or another one.

A round of the cloud:

    waits      for guidance of the cloud's adapter, if the settings say so
    opened     each edge that answered gets a share: directions of its own, or the same ones for all
    collected  an edge has closed its share, and what came is kept here
    ended      the cloud has combined as any server does, and its own adapter has taken the step

A round ends when all shares were collected. At the deadline edges close what they have, and those that do not answer are left out.
Then edges are told the coefficients and the adapter's hash.

Guidance lies in the cloud's state as it does in that of a server that decides alone (`guidance.py`). Edges get its files once.

Each change is on the disk before an edge hears of it. So a cloud that was killed goes on where it was. An edge that was away gets
the rounds in between. What it had collected of a round that ended without it does not count, there as here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from bespoke.bundle.reader import Bundle
from bespoke.rules.guidance import CHECKPOINT
from bespoke_federated.adapter import Adapter, snapshot_of
from bespoke_federated.clock import Clock, SystemClock
from bespoke_federated.cloud.settings import CloudSettings
from bespoke_federated.cloud.store import CloudRound, CloudStore, EdgeShare
from bespoke_federated.directions import spans
from bespoke_federated.guidance import check_bundle, delete_other_offers, opening_of
from bespoke_federated.led.documents import MOST_ENDED, Collected, Ended, Opened, Order, Refusal, Standing
from bespoke_federated.led.guidance import files_for, guided_by
from bespoke_federated.steps import combined, restored, taken
from bespoke_federated.whole_file import write_whole

__all__ = ["Carrier", "Cloud"]

PAUSE_SECONDS = 1.0  # where there is nobody to ask
FAREWELL_SECONDS = 300.0  # for edges to hear of the last round


class Carrier(Protocol):
    """What brings orders to edges. A node is one way to an edge, by a number of the carrier's own."""

    def nodes(self) -> Collection[int]:
        """The nodes that are connected."""
        ...

    def carry(self, orders: Mapping[int, Order]) -> Mapping[int, Standing | Refusal]:
        """The answers that came to orders, by node. Without an answer from a node its edge may have heard the order or not."""
        ...


class Seen(NamedTuple):
    """What is known of the edge behind a node."""

    edge: str
    ended: int
    lacking: tuple[str, ...] = ()  # files of guidance


class Cloud:
    """The rounds of a cloud's state folder. `tell` gets a line for each thing that happens."""

    def __init__(
        self,
        bundle: Bundle,
        state: Path,
        settings: CloudSettings,
        tell: Callable[[str], None] = print,
        clock: Clock | None = None,
    ) -> None:
        settings.check()
        self.settings, self._tell, self._clock = settings, tell, clock or SystemClock()
        initial = Adapter.of_bundle(bundle)
        assert bundle.manifest.federation is not None  # or there was no such adapter
        self.federation, self.initial_sha256 = bundle.manifest.federation, initial.sha256
        check_bundle(initial, self.federation, settings)
        facts = {"task": self.federation.task, "adapter": initial.sha256, "seed": str(self.federation.seed)}
        self.store = CloudStore(state, facts)
        self.store.shapes_of_guidance = initial.steps.received
        self._seen: dict[int, Seen] = {}  # by node
        self._present: set[str] = set()  # edges that answered when they were last asked
        self._counts: dict[str, int] = {}  # devices of the open round, by edge
        self._closing = False  # whether edges are told to close the open round
        try:
            self.adapter = restored(self.store, initial, settings.rounds)
            self._due = self._due_after_restart()
        except BaseException:
            self.store.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    @property
    def done(self) -> bool:
        """Whether the last round of the task has ended."""
        return self.store.last_ended() >= self.settings.rounds

    def run(self, carrier: Carrier, pause: Callable[[float], None] = time.sleep) -> None:
        """Leads until the task has ended and its edges know it. Edges that are away hear of it in a later run."""
        while not self.done:
            if not self.exchange(carrier):
                pause(PAUSE_SECONDS)
        ends = self._clock.running() + FAREWELL_SECONDS
        while self._clock.running() < ends:
            answered, last = self.exchange(carrier), self.store.last_ended()
            if self._seen and all(seen.ended == last for seen in self._seen.values()):
                break
            if not answered:
                pause(PAUSE_SECONDS)

    def exchange(self, carrier: Carrier) -> bool:
        """Asks all edges that have something to hear or to tell, once. Whether one has answered."""
        connected = set(carrier.nodes())
        self._seen = {node: seen for node, seen in self._seen.items() if node in connected}
        self._present &= {seen.edge for seen in self._seen.values()}
        self._open_if_possible()
        last = self.store.last_round()
        round = last if last is not None and last.is_open else None
        orders = {node: order for node in connected if (order := self._order(node, round)) is not None}
        answers = carrier.carry(orders) if orders else {}
        for node in orders:
            self._note(node, answers.get(node), round)
        if round is not None:
            self._end_if_due(round)
        return bool(answers)

    def _open_if_possible(self) -> None:
        """Opens the next round if there are edges to share it, and guidance if it waits for some."""
        last, edges, settings = self.store.last_round(), sorted(self._present), self.settings
        if self.done or (last is not None and last.is_open):
            return
        waits = last is not None and last.waits
        number = last.number + (0 if waits else 1) if last else 1
        if settings.guidance and not waits:
            self.store.wait_with_round(number, self._clock.calendar())
            self._due = self._clock.running() + settings.guidance_wait_seconds
        if len(edges) < settings.least_edges:
            return
        is_late = self._clock.running() >= self._due
        opening = opening_of(self.store, self.adapter, settings, is_late=is_late, servers=len(edges))
        if opening is None:
            return
        of_edges = zip(edges, spans(opening.measured, settings, len(edges)), strict=True)
        shares = [EdgeShare(edge, span, settings.devices, None) for edge, span in of_edges]
        self.store.open_round(number, opening, shares, self._clock.calendar())
        self._due = self._clock.running() + settings.deadline_seconds
        self._closing, self._counts = False, {}
        guided = " with guidance" if opening.files else ""
        self._tell(f"round {number}: open at {len(edges)} edges{guided}")

    def _order(self, node: int, round: CloudRound | None) -> Order | None:
        """What an edge needs to hear. None: nothing, and it has nothing to tell."""
        seen = self._seen.get(node)
        order = Order(task=self.federation.task, initial=self.initial_sha256, rounds=self.settings.rounds)
        if seen is None:
            return order
        behind = _up_to_guidance(self.store.ended_after(seen.ended, MOST_ENDED))
        ended, opened = tuple(self._ended(row, seen.edge) for row in behind), None
        if round is not None and seen.ended + len(ended) == round.number - 1:
            opened = self._opened(round, seen.edge)
        needed = [row.guidance for row in (*behind, *([round] if opened and round else []))]
        order = order.model_copy(update={"ended": ended, "files": files_for(self.store.folder, needed, seen.lacking)})
        if opened is None or round is None:
            return order if ended else None
        return order.model_copy(
            update={
                "opened": opened,
                "close": self._closing,
                # Of watchers the guard needs squares.
                "each_number": self.settings.combine != "mean" or bool(round.measured.watched),
                "compared": self.settings.combine != "mean",
                "wait_seconds": 0.0 if self._closing else self.settings.poll_seconds,
            }
        )

    def _ended(self, row: CloudRound, edge: str) -> Ended:
        assert row.coefficients is not None
        assert row.adapter is not None
        return Ended(
            number=row.number,
            groups=row.measured.groups,
            each=row.measured.each,
            guidance=guided_by(row.measured, row.guidance),
            coefficients=row.coefficients,
            guided=row.guided,
            half=row.half,
            adapter=row.adapter,
            counted=self.store.counted(row.number, edge),
        )

    def _opened(self, round: CloudRound, edge: str) -> Opened | None:
        """An edge's share in the open round, if it has one and has not closed it."""
        for share in self.store.shares(round.number):
            if share.edge == edge and share.collected is None:
                return Opened(
                    number=round.number,
                    groups=round.measured.groups,
                    each=round.measured.each,
                    guidance=guided_by(round.measured, round.guidance),
                    first_group=share.span.first_group,
                    own_groups=share.span.groups,
                    first_watched=share.span.first_watched,
                    own_watched=share.span.watched,
                    devices=share.devices,
                )
        return None

    def _note(self, node: int, answer: Standing | Refusal | None, round: CloudRound | None) -> None:
        """Takes what an edge answered."""
        seen = self._seen.get(node)
        if isinstance(answer, Standing) and self._is_ours(answer):
            self._seen[node] = Seen(answer.edge, answer.ended, answer.lacking)
            if seen is None:
                self._tell(f"edge {answer.edge[:8]}: connected, after round {answer.ended}")
            self._present.add(answer.edge)
            self.store.note_edge(answer.edge, answer.most_rounds)
            if answer.collected is not None and round is not None and answer.collected.round == round.number:
                self._collect(answer.edge, answer.collected, round)
            return
        if isinstance(answer, Refusal):
            self._tell(f"an edge: {answer.object}: got {answer.got}, expected {answer.expected}. {answer.next_step}")
        elif isinstance(answer, Standing):
            self._tell(f"edge {answer.edge[:8]}: its round {answer.ended} is not one of this cloud. Empty its state")
        if seen is not None:
            self._present.discard(seen.edge)
            if answer is not None:
                del self._seen[node]  # it may have gone back to an older state

    def _is_ours(self, standing: Standing) -> bool:
        """Whether an edge has the adapter that the cloud had after the same round."""
        if standing.ended == 0:
            return standing.adapter == self.initial_sha256
        row = self.store.round(standing.ended)
        return row is not None and row.adapter == standing.adapter

    def _collect(self, edge: str, collected: Collected, round: CloudRound) -> None:
        self._counts[edge] = collected.devices
        if not collected.closed:
            return
        for share in self.store.shares(round.number):
            if share.edge == edge and share.collected is None:
                if not _fits(collected, share, round):
                    self._tell(f"edge {edge[:8]}: numbers of other directions than those of its share")
                    return
                self.store.collect(edge, collected)
                self._tell(f"edge {edge[:8]}: {collected.devices} devices in round {round.number}")

    def _end_if_due(self, round: CloudRound) -> None:
        """Ends the round once all shares are there. At the deadline edges are told to close what they have."""
        shares = self.store.shares(round.number)
        came = sum(share.collected.devices for share in shares if share.collected)
        late = self._clock.running() >= self._due
        if all(share.collected for share in shares) or (
            self._closing and (came >= self.settings.least_devices or late)
        ):
            self._end(round, shares)
        elif late:
            if sum(self._counts.values()) >= self.settings.least_devices:
                self._closing = True
            self._due = self._clock.running() + self.settings.deadline_seconds

    def _end(self, round: CloudRound, shares: list[EdgeShare]) -> None:
        numbers: dict[int, list[float]] = {}
        sums: dict[int, tuple[int, float]] = {}
        for collected in (share.collected for share in shares if share.collected):
            for one in collected.numbers:
                for direction, number in enumerate(one.numbers, one.first):
                    numbers.setdefault(direction, []).append(number)
            for direction, more in enumerate(zip(collected.counts, collected.sums, strict=True), collected.first):
                count, total = sums.get(direction, (0, 0.0))
                sums[direction] = (count + more[0], total + more[1])
        numbers |= {direction: [total / count] for direction, (count, total) in sums.items() if count}
        half = self.settings.is_half(round.number)
        texts = combined(numbers, round.measured, self.settings, half=half, is_guided=bool(round.guidance))
        adapter, texts = taken(self.adapter, texts, self.store.guidance_of(round.number))
        self.store.end_round(round.number, texts, adapter.sha256)
        self.adapter, self._closing = adapter, False
        write_whole(self.store.folder / CHECKPOINT, snapshot_of(adapter, half=False))
        delete_other_offers(self.store.folder, adapter)
        devices = sum(share.collected.devices for share in shares if share.collected)
        missing = sum(share.collected is None for share in shares)
        without = f", {missing} edges are missing" if missing else ""
        self._tell(f"round {round.number}: ended with {devices} devices{without}, adapter {adapter.sha256[:8]}")

    def _due_after_restart(self) -> float:
        """When the last round is due, on the running clock."""
        last, settings = self.store.last_round(), self.settings
        patience = settings.guidance_wait_seconds if last and last.waits else settings.deadline_seconds
        left = patience - max(0.0, self._clock.calendar() - last.started if last else 0.0)
        return self._clock.running() + max(0.0, left)


def _up_to_guidance(rounds: Sequence[CloudRound]) -> list[CloudRound]:
    """The first rounds, up to one with guidance: an order brings files of one."""
    guided = (place for place, row in enumerate(rounds, 1) if row.guidance)
    return list(rounds[: next(guided, len(rounds))])


def _fits(collected: Collected, share: EdgeShare, round: CloudRound) -> bool:
    """Whether what an edge says is of the directions of its share."""
    each = round.measured.each
    first, count = share.span.first_group * each, share.span.groups * each
    of_sums = not collected.counts or (collected.first, len(collected.counts)) == (first, count)
    of_numbers = all(share.span.holds(one.first, len(one.numbers), each) for one in collected.numbers)
    return of_sums and len(collected.counts) == len(collected.sums) and of_numbers
