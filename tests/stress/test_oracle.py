# SPDX-License-Identifier: Apache-2.0
"""The judge of the stress finds what it is there to find, and leaves alone what nobody can know."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.stress.journal import Journal, Operation, operations_of
from tests.stress.legal import faults
from tests.stress.oracle import Learned, Oracle, broken_bases, broken_versions, canonical, forgotten_words, words_of
from tests.stress.residue import new_word, residue

NOW = 100.0
WORDS = [new_word(random.Random(seed)) for seed in range(3)]
EXAMPLE = {"text": f"the cat sat on {WORDS[0]}"}
ID = WORDS[1]
THERE = {ID: ("train", canonical(EXAMPLE))}


def done(
    op: str, start: float, end: float, ack: Any = None, error: list[str] | None = None, **intent: Any
) -> Operation:
    answers = ["ack"] * (ack is not None) + ["error"] * (error is not None)
    return Operation(op, start, intent, "somebody", 1, end=end, ack=ack, error=error, answers=answers)


def add(start: float, end: float, *, acknowledged: bool = True, created: bool = True) -> Operation:
    return done(
        "add", start, end, {"created": created, "split": "train"} if acknowledged else None, id=ID, example=EXAMPLE
    )


def forget(start: float, end: float, *, acknowledged: bool = True, there: bool = True) -> Operation:
    return done("forget", start, end, {"example": there} if acknowledged else None, id=ID)


def found(*told: Operation, stored: dict[str, tuple[str, str]] | None = None) -> list[str]:
    """The first words of what is broken."""
    oracle = Oracle()
    return [one.partition(":")[0] for one in oracle.look(NOW, stored or {}, oracle.examples(told))]


@pytest.mark.parametrize(
    ("told", "there", "broken"),
    [
        ([add(1, 2)], True, []),
        ([add(1, 2)], False, ["lost"]),
        ([add(1, 2, acknowledged=False)], True, []),
        ([add(1, 2, acknowledged=False)], False, []),
        ([add(1, 2), forget(3, 4)], False, []),
        ([add(1, 2), forget(3, 4)], True, ["forgotten back"]),
        ([add(1, 2), forget(3, 4, acknowledged=False)], True, []),
        ([add(1, 2), forget(3, 4, acknowledged=False)], False, []),
        ([add(1, 2), forget(3, 4), add(5, 6)], False, ["lost"]),
        ([add(1, 2), forget(3, 4), add(5, 6)], True, []),
        ([add(1, 2), forget(1.5, 4), add(3, 6, acknowledged=False)], True, []),
        ([add(1, 2), forget(3, 4, there=False)], False, ["told that it is not there, though it was"]),
        ([add(1, 2), add(3, 4)], True, ["told that it is not there, though it was"]),
        ([add(1, 2), forget(3, 4), forget(5, 6)], False, ["told that it is there, though it was not"]),
        (
            [add(1, 2), forget(3, 4), done("list", 5, 6, [ID])],
            True,
            ["told that it is there, though it was not", "forgotten back"],
        ),
        ([], True, [f"nobody added {ID}"]),
    ],
)
def test_of_examples_only_what_cannot_be_is_told(told: list[Operation], there: bool, broken: list[str]) -> None:
    assert found(*told, stored=THERE if there else {}) == broken


def test_what_was_in_doubt_stays_as_it_was_seen() -> None:
    told = [add(1, 2, acknowledged=False)]
    for first, broken in ((THERE, "lost"), ({}, "forgotten back")):
        oracle = Oracle()
        assert oracle.look(NOW, first, oracle.examples(told)) == []
        other = {} if first else THERE
        assert [one.partition(":")[0] for one in oracle.look(NOW + 1, other, oracle.examples(told))] == [broken]


def test_other_content_is_told() -> None:
    assert found(add(1, 2), stored={ID: ("train", canonical({"text": "another"}))}) == ["other content"]


def test_words_must_be_gone_once_forgetting_was_acknowledged_or_the_state_was_opened_again() -> None:
    for told, at_once, later in (
        ([add(1, 2), forget(3, 4)], True, True),
        ([add(1, 2), forget(3, 4, acknowledged=False)], False, True),
        ([add(1, 2, acknowledged=False)], False, False),
        ([add(1, 2), forget(3, 4), add(3.5, 6, acknowledged=False)], False, False),
    ):
        known = Oracle().examples(told)
        assert words_of(ID, known[ID]) == [ID, WORDS[0]]
        assert forgotten_words(known, {}, finished=False) == ([ID, WORDS[0]] if at_once else [])
        assert forgotten_words(known, {}, finished=True) == ([ID, WORDS[0]] if later else [])


def test_twelve_characters_or_tokens_of_a_word_are_found_in_any_file(tmp_path: Path) -> None:
    noise = random.Random(1).randbytes(100_000)
    tokens = struct.pack("<13i", *WORDS[0][5:18].encode())
    (tmp_path / "text").write_bytes(noise + WORDS[0][3:15].encode() + noise)
    (tmp_path / "tokens").write_bytes(noise + tokens + noise)
    (tmp_path / "short").write_bytes(noise + WORDS[0][3:14].encode() + b"\0" + WORDS[2].encode())
    assert residue(tmp_path, [WORDS[0], ID]) == [
        f"text, byte 100000: 12 characters of {WORDS[0]}",
        f"tokens, byte 100000: 13 tokens of {WORDS[0]}",
    ]


def test_a_version_that_was_taken_back_is_told_and_one_that_is_lost() -> None:
    taken = done("rollback", 1, 2, {"version": 3}, versions=[3, 4])
    assert broken_versions([taken], Learned({3: None}, {}, 4)) == []
    assert "version 4 is back" in broken_versions([taken], Learned({3: None, 4: None}, {}, 4))[0]
    taken_in = done("import", 3, 4, {"version": 5})
    assert "lost: version 5" in broken_versions([taken, taken_in], Learned({}, {}, 5))[0]
    assert broken_versions([taken, taken_in], Learned({6: None, 7: None, 8: None}, {}, 8)) == []
    assert broken_versions([taken, taken_in, done("reset", 4.5, 5, versions=[])], Learned({}, {}, 5)) == []


def test_a_run_behind_what_was_told_and_one_that_started_from_what_is_forgotten_are_told() -> None:
    trained = done("train", 1, 2, {"run": 1, "total_steps": 4, "accepted": None, "stopped_because": "steps_done"})
    assert broken_versions([trained], Learned({}, {1: (4, None, None)}, 0)) == []
    assert "stands at step 3" in broken_versions([trained], Learned({}, {1: (3, None, None)}, 0))[0]
    assert broken_versions([trained], Learned({}, {1: (0, "example_forgotten", None)}, 0)) == []
    runs: dict[int, tuple[int, str | None, int | None]] = {1: (4, "example_forgotten", None), 2: (4, "finished", 1)}
    assert "saw what is forgotten" in broken_versions([], Learned({}, runs, 0))[0]


def test_what_is_taken_with_the_bundle_of_a_base_that_the_state_has_left_is_told() -> None:
    moved = done("new base", 1, 2, True, versions=[], to="other")
    imported = done("import", 3, 4, {"version": 1}, bundle="one")
    assert "on a state of other" in broken_bases([moved, imported])[0]
    assert broken_bases([moved, done("new base", 3.5, 9, versions=[], to="one"), imported]) == []


def test_errors_that_nobody_may_be_told_are_told() -> None:
    core = [
        "BespokeError",
        "The device core",
        "an end by SIGKILL from outside, perhaps because the machine had no memory left",
    ]
    assert faults([done("train", 1, 2, error=["StateLocked", "trainer.lock", "a lock held by process 7"])], {}) == []
    assert len(faults([done("train", 1, 2, error=["StateError", "adapter version 3", "no such version"])], {})) == 1
    assert faults([done("train", 1, 2, error=core)], {1: 1}) == []
    assert len(faults([done("train", 1, 2, error=core), done("train", 3, 4, error=core)], {1: 1})) == 1
    inherited: dict[str, Any] = {"inherited": True, "fork": True}
    assert (
        faults([done("list", 1, 2, error=["StateError", "alice", "a model that process 3 opened"], **inherited)], {})
        == []
    )
    assert len(faults([done("list", 1, 2, [], **inherited)], {})) == 1
    assert len(faults([done("list", 1, 2, error=["StateError", "alice", "SQLITE_MISUSE"], **inherited)], {})) == 1


def test_a_journal_keeps_what_was_begun_and_drops_a_torn_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    journal.end(journal.begin("add", id="1"), "ack", {"created": True})
    journal.begin("forget", id="1")
    with (tmp_path / "a.jsonl").open("a") as file:
        file.write('{"n": 2, "ack": {"exam')
    first, second = operations_of(tmp_path / "a.jsonl", NOW)
    assert (first.op, first.acknowledged, first.ack) == ("add", True, {"created": True})
    assert (second.op, second.in_doubt, second.end) == ("forget", True, NOW)
