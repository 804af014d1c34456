# SPDX-License-Identifier: Apache-2.0
"""The errors that a process of the stress may be told, each with its reason. Whatever else it is told is a fault."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.stress.journal import Operation

ANY = ""
CORE_KILLED, CONVERSATION_GONE = "an end by SIGKILL", "a conversation whose process has ended"
OVER_FORK = r"process \d+"


@dataclass(frozen=True)
class Legal:
    """A legal error of operations that match `ops` wholly. `kind` is its class, and its `got` contains this `got`."""

    ops: str
    kind: str
    got: str
    reason: str


LEGAL = (
    Legal(
        "train|view|rollback|reset|import|abandon|new base",
        "StateLocked",
        "a lock held by",
        "one trains; these do not wait",
    ),
    Legal(
        ".*", "Unavailable", "held for more than 30 s|SQLITE_BUSY", "a dozen processes may keep one waiting for long"
    ),
    Legal(
        "forget|reset",
        "Unavailable",
        "another process that reads the write-ahead log",
        "deleted, but to be called again",
    ),
    Legal(
        ".*",
        "StateError",
        "a state of the base model",
        "another process has moved the state to the other bundle's base",
    ),
    Legal(
        "open", "StateError", "had open when it forked this one", "a forked process is to start another one for that"
    ),
    Legal(
        "train|evaluate|generate|score|classify|next",
        "Busy",
        "a call while another one computes",
        "threads of one process",
    ),
    Legal(
        "begin training|generate",
        "Busy",
        "a training while one runs|a question while it trains",
        "the page does one at a time",
    ),
    Legal(
        "export", "AdapterError", "no training was accepted", "nothing was accepted yet, or all of it was taken back"
    ),
    Legal("import", "AdapterError", "base", "the export is of an adapter of the other base"),
    Legal(
        "generate",
        "StateError",
        "a version or a note that was deleted while it was given",
        "the page says no more of it then",
    ),
    # The page tells with its view how the training has ended that it began.
    Legal("view", "StateError", "A note was forgotten while it trained", "the page does not show what came of it"),
    Legal("train|view", "DataError", "no example of the user", "none was added yet, or all are forgotten"),
    Legal(
        "evaluate", "DataError", "none|one that was forgotten meanwhile", "as for training; some may go while it looks"
    ),
)


def faults(operations: Iterable[Operation], core_kills: Mapping[int, int]) -> list[str]:
    """What the processes were told that nobody may be told. `core_kills`: how many children of a process were killed."""
    found = []
    ended: Counter[int] = Counter()
    for one in operations:
        where = f"{one.op} of {one.where} at {one.start:.3f}"
        if one.raised is not None:
            found.append(f"{where} raised {one.raised.strip().splitlines()[-1]}\n{one.raised}")
        elif one.intent.get("inherited"):
            if one.error is None:
                used = one.acknowledged and one.op != "close"  # which changes nothing
                found += [f"{where}: a handle of another process was used"] if used else []
            elif not (one.error[0] == "StateError" and re.search(OVER_FORK, " ".join(one.error))):
                found.append(f"{where}: a handle of another process was refused by {one.error}")
        elif one.op == "wait for the child" and one.ack:
            found.append(f"{where}: the child ended with {one.ack}")
        elif one.error is not None:
            if CORE_KILLED in one.error[2]:
                ended[one.pid] += 1
                if ended[one.pid] > core_kills.get(one.pid, 0):
                    found.append(f"{where}: the core's process was killed, and not by the stress: {one.error}")
            elif CONVERSATION_GONE in one.error[2]:
                if not core_kills.get(one.pid, 0):
                    found.append(f"{where}: the process of a conversation has ended, and was not killed: {one.error}")
            elif not any(allows(rule, one) for rule in LEGAL):
                found.append(f"{where}: {one.error}, with {one.intent}")
    return found


def allows(rule: Legal, one: Operation) -> bool:
    assert one.error is not None
    kind, _, got = one.error
    # What comes from the page is in its words: the kind is not among them.
    same = kind in (rule.kind, "Refused")
    return same and re.fullmatch(rule.ops, one.op) is not None and re.search(rule.got, got) is not None
