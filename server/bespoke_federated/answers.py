# SPDX-License-Identifier: Apache-2.0
"""What a server answers to a device's document: the rounds behind it, or a snapshot where that is less to send."""

from __future__ import annotations

import json
from typing import NamedTuple

from bespoke.bundle.signature import signed_document
from bespoke.rules.round_documents import DeviceDocument, RoundDocument, RoundGuidance, RoundSpan, Snapshot
from bespoke_federated.rounds import Rounds
from bespoke_federated.rows import KeptFile, RoundRow
from bespoke_federated.store import Store

__all__ = ["answer", "signed"]

MOST_ROUNDS = 4096  # of a document; a device that is further behind asks again
MOST_COEFFICIENT_BYTES = 4 * 2**20  # as text; devices read documents of up to 16 MiB
MOST_SPANS = 512


class Behind(NamedTuple):
    """Rounds that a device has to follow, and whether they are all of them."""

    spans: tuple[RoundSpan, ...]
    complete: bool


def answer(
    store: Store, rounds: Rounds, device: str, document: DeviceDocument, taken: tuple[int, ...]
) -> RoundDocument:
    """The answer to a device whose numbers were taken. Call it within the same transaction: it may assign directions."""
    last = store.last_ended()
    last_number = last.number if last else 0
    differs = document.differs or (
        document.round <= last_number and document.adapter != rounds.adapter_after(document.round)
    )
    snapshot = _snapshot(store, document, differs)
    start = snapshot.round if snapshot else document.round
    cannot_follow = (differs and snapshot is None) or store.first_lost_after(start) is not None
    if cannot_follow:
        rounds.want_snapshot()
    behind = Behind((), True) if cannot_follow else _spans(store, start)
    up_to_date = not cannot_follow and behind.complete and start <= last_number
    asked = rounds.asked_of(device) if up_to_date and document.measures else None
    measure, asked_before = asked if asked else (None, False)
    # A device that was asked for the same before has lost the answer, or cannot measure: it must not ask in a circle.
    hurry = not behind.complete or (measure is not None and not asked_before)
    return RoundDocument(
        task=document.task,
        taken=taken,
        snapshot=None if snapshot is None else _named(snapshot, rounds),
        rounds=behind.spans,
        measure=measure,
        wait_seconds=0.0 if hurry else rounds.settings.retry_seconds,
        done=up_to_date and rounds.done,
    )


def signed(document: RoundDocument, private_key: bytes) -> bytes:
    """The answer's bytes, signed by the server's key in PEM."""
    return signed_document(json.dumps(document.model_dump(mode="json"), separators=(",", ":")), private_key)


def _snapshot(store: Store, document: DeviceDocument, differs: bool) -> KeptFile | None:
    """The snapshot to start from, if there is one and the device needs it or it is less than the rounds before it."""
    newest = store.newest_snapshot()
    if newest is None or not (document.differs or newest.round > document.round):
        return None  # a device takes an older one only where it has said itself that it differs
    lost = store.first_lost_after(document.round)
    if differs or (lost is not None and lost <= newest.round):
        return newest
    saved = store.coefficient_bytes_after(document.round) - store.coefficient_bytes_after(newest.round)
    return newest if newest.size < saved else None


def _named(file: KeptFile, rounds: Rounds) -> Snapshot:
    return Snapshot(round=file.round, adapter=rounds.adapter_after(file.round), sha256=file.sha256, size=file.size)


def _spans(store: Store, after: int) -> Behind:
    """The rounds behind one. Those that follow each other with the same number of directions are one span, up to a rounding."""
    rows = store.ended_after(after, MOST_ROUNDS + 1)
    groups: list[list[RoundRow]] = []
    size = 0
    for row in rows[:MOST_ROUNDS]:
        joins = bool(groups) and _may_join(groups[-1][-1], row)
        size += len(row.coefficients or "")
        if (size > MOST_COEFFICIENT_BYTES and groups) or (not joins and len(groups) == MOST_SPANS):
            break
        if joins:
            groups[-1].append(row)
        else:
            groups.append([row])
    taken = sum(map(len, groups))
    return Behind(tuple(map(_span, groups)), taken == len(rows))


def _may_join(last: RoundRow, row: RoundRow) -> bool:
    """Whether one span can say both. Rounds with guidance stand alone."""
    return not last.half and not last.guidance and not row.guidance and last.directions == row.directions


def _span(rows: list[RoundRow]) -> RoundSpan:
    (*_, last) = rows
    guidance = None
    if last.guided is not None:
        guidance = RoundGuidance(coefficients=last.guided, files=last.guidance)
    return RoundSpan(
        first=rows[0].number,
        count=len(rows),
        directions=rows[0].directions,
        coefficients="".join(row.coefficients or "" for row in rows),  # three bytes are four characters: no padding
        guidance=guidance,
        half=last.half,
        adapter=last.adapter or "",
    )
