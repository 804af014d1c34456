# SPDX-License-Identifier: Apache-2.0
"""What must be in the files, and what must not, after what the processes were told. Uses nothing of bespoke.

An operation lasted from its first line to its second, or to the end of its process; what lies between is not known. An example is
there if somebody was told so, and nobody may have forgotten it since; it is gone if somebody was told so, and nobody may have added
it since. What is seen once of an operation in doubt is so from then on.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.stress.journal import Operation

WORD = re.compile(r"[A-Z2-7]{24}")
VERSIONS_KEPT = 3


@dataclass(frozen=True)
class Span:
    """When something was so, or was tried."""

    start: float
    end: float
    what: str


@dataclass
class Known:
    """Facts known about one example."""

    content: dict[str, Any] | None = None
    adds: list[Span] = field(default_factory=list)  # tried, whatever came of it
    forgets: list[Span] = field(default_factory=list)
    there: list[Span] = field(default_factory=list)  # it was there, at some time within
    gone: list[Span] = field(default_factory=list)
    told_there: list[Span] = field(default_factory=list)  # as somebody found it, by none of its own doing
    told_gone: list[Span] = field(default_factory=list)
    splits: set[str] = field(default_factory=set)
    forgotten: list[Span] = field(default_factory=list)  # acknowledged

    def lost(self, seen: Span) -> bool:
        """Seen as not there, though it was, and nobody can have forgotten it."""
        before = max((one for one in self.there if one.end < seen.start), key=lambda one: one.start, default=None)
        return before is not None and not any(
            one.end > before.start and one.start < seen.end and one.what != seen.what for one in self.forgets
        )

    def back(self, seen: Span) -> bool:
        """Seen as there, though it was gone, and nobody can have added it."""
        before = max((one for one in self.gone if one.end < seen.start), key=lambda one: one.start, default=None)
        since = -math.inf if before is None else before.start
        return not any(one.end > since and one.start < seen.end and one.what != seen.what for one in self.adds)


class Oracle:
    """The oracle of one stress. It remembers what it has seen in the files."""

    def __init__(self) -> None:
        self._looked = -math.inf
        self._stored: set[str] = set()

    def examples(self, operations: Iterable[Operation]) -> dict[str, Known]:
        known: dict[str, Known] = defaultdict(Known)
        for one in operations:
            span = Span(one.start, one.end, f"{one.op} of {one.where} at {one.start:.6f}")
            if one.op == "add":
                example = known[one.intent["id"]]
                example.content = one.intent["example"]
                example.adds.append(span)
                if one.acknowledged:
                    example.there.append(span)
                    example.splits.add(one.ack["split"])
                    (example.told_gone if one.ack["created"] else example.told_there).append(span)
            elif one.op == "forget":
                example = known[one.intent["id"]]
                example.forgets.append(span)
                if one.acknowledged:
                    example.gone.append(span)
                    example.forgotten.append(span)
                    (example.told_there if one.ack["example"] else example.told_gone).append(span)
            # The page's list says nothing here: it may be late by what another process forgot (docs/how_to/use_the_page.md).
            elif one.op == "list" and one.acknowledged and one.end > self._looked:
                for id in one.ack:
                    known[id].there.append(span)
                    known[id].told_there.append(span)
        look = Span(self._looked, self._looked, "a look at the files")
        for id, example in known.items():
            (example.there if id in self._stored else example.gone).append(look)
        return dict(known)

    def look(self, at: float, stored: dict[str, tuple[str, str]], known: dict[str, Known]) -> list[str]:
        """Broken promises about the examples; `stored`: id -> split and JSON, of the files as they are."""
        found = [f"nobody added {id}" for id in stored if id not in known]
        for id, example in known.items():
            found += history(id, example, self._looked)
            seen = Span(at, at, "the files")
            if id in stored:
                if example.back(seen):
                    found.append(f"forgotten back: {id}, {example}")
                split, text = stored[id]
                if text != canonical(example.content):
                    found.append(f"other content: {id} is {text}, added was {example.content}")
                if len(example.splits) == 1 and len(example.adds) == 1 and split not in example.splits:
                    found.append(f"another split: {id} is for {split}, told was {example.splits}")
            elif example.lost(seen):
                found.append(f"lost: {id}, {example}")
        self._looked, self._stored = at, set(stored)
        return found


def history(id: str, example: Known, since: float) -> list[str]:
    """What processes were told one after the other, and after `since`, does not contradict itself."""
    gone = [one for one in example.told_gone if one.end > since and example.lost(one)]
    back = [one for one in example.told_there if one.end > since and example.back(one)]
    told = [f"told that it is not there, though it was: {id} by {one}, {example}" for one in gone]
    return told + [f"told that it is there, though it was not: {id} by {one}, {example}" for one in back]


def words_of(id: str, example: Known) -> list[str]:
    return WORD.findall(id + " " + json.dumps(example.content))


def forgotten_words(known: dict[str, Known], stored: Iterable[str], *, finished: bool) -> list[str]:
    """Forgotten words that are still stored. `finished`: the state was opened since, which completes interrupted work."""
    found = []
    there = set(stored)
    for id, example in known.items():
        if id in there:
            continue
        ends = example.forgets if finished else example.forgotten
        last = max((one.start for one in ends), default=None)
        if last is None or any(one.end > last for one in example.adds):
            continue
        # A forgetting that was broken off after the one that was acknowledged has found nothing to do.
        found += words_of(id, example)
    return found


def canonical(example: Any) -> str:
    return json.dumps(example, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# ---- adapters ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Learned:
    """What the files say: versions by id with their run, runs by id, the last id that was given to a version."""

    versions: dict[int, int | None]
    runs: dict[int, tuple[int, str | None, int | None]]  # step, why it ended, parent
    last_version: int


def broken_versions(operations: list[Operation], found: Learned) -> list[str]:
    """Versions that were taken back are gone, those that were told are there unless something may have taken them away, and no
    run is behind the step that it was told to have done."""
    broken = []
    for one in operations:
        if one.acknowledged and one.op in ("rollback", "reset", "new base"):
            before = set(one.intent["versions"])
            if one.op == "rollback":
                now = one.ack["version"] if isinstance(one.ack, dict) else max(before, default=0)
                before = {id for id in before if id > (now or 0)}
            back = before & set(found.versions)
            broken += [f"version {id} is back, which a {one.op} at {one.start:.3f} took away" for id in back]
    takers = [
        one for one in operations if one.op in ("rollback", "reset", "new base", "forget") and not never_begun(one)
    ]
    last_taken = max((one.end for one in takers), default=-math.inf)
    for one in operations:
        if one.acknowledged and one.op == "import" and one.start > last_taken:
            id = one.ack["version"]
            if id not in found.versions and found.last_version - id < VERSIONS_KEPT:
                broken.append(f"lost: version {id}, imported by {one.where} at {one.start:.3f}")
        if one.acknowledged and one.op == "train":
            step, ended, _ = found.runs.get(one.ack["run"], (math.inf, None, None))
            if ended != "example_forgotten" and step < one.ack["total_steps"]:
                broken.append(
                    f"run {one.ack['run']} stands at step {step}; {one.where} was told {one.ack['total_steps']}"
                )
    for id, (_, ended, parent) in found.runs.items():
        if parent in found.runs and found.runs[parent][1] == "example_forgotten" and ended != "example_forgotten":
            broken.append(f"run {id} ended as {ended}; the run {parent}, from which it started, saw what is forgotten")
    return broken


def never_begun(one: Operation) -> bool:
    return one.error is not None and one.error[0] in ("StateLocked",)


def broken_bases(operations: list[Operation]) -> list[str]:
    """After the state was moved to a base, no adapter is taken or given as one of the other base, until it is moved back."""
    found = []
    moves = [one for one in operations if one.op == "new base" and not never_begun(one)]
    for one in operations:
        if one.acknowledged and one.op in ("import", "train", "export"):
            known = [move for move in moves if move.acknowledged and move.end < one.start]
            last = max(known, key=lambda move: move.start, default=None)
            if last is None or last.intent["to"] == one.intent["bundle"]:
                continue
            if not any(move.end > last.start and move is not last and move.start < one.end for move in moves):
                with_, of = one.intent["bundle"], last.intent["to"]
                found.append(f"{one.op} of {one.where} at {one.start:.3f}, with bundle {with_}, on a state of {of}")
    return found
