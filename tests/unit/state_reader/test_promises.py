# SPDX-License-Identifier: Apache-2.0
"""The state reader finds each promise that is broken on a copy of a real state, and no other."""

from __future__ import annotations

import math
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.reading import broken_promises, read_state
from tests.unit.state_reader.damage import Damage, header, more_versions, sql, tensor_file

pytestmark = pytest.mark.xdist_group("tiny")

RUN = (
    "INSERT INTO runs (method, seed, settings, steps, step, cursor, started_at) "
    "VALUES ('mesp', 1, '{\"training\":{}}', 9, 0, '{}', '')"
)
LOSS = "INSERT INTO losses (version, rows, loss) VALUES ({})"
FIRST = "UPDATE examples SET {} WHERE key = 1"
CURSOR = '\'{{"general_position":{},"step":{},"user_position":{}}}\''


def with_nan(data: bytes) -> bytes:
    return data[:-4] + struct.pack("<f", math.nan)


def one_column_less(entries: dict[str, dict[str, object]]) -> None:
    name = sorted(entries)[0]
    rows, columns = entries[name]["shape"]  # type: ignore[misc]
    entries[name]["shape"] = [columns, rows]


def renamed(entries: dict[str, dict[str, object]]) -> None:
    last = sorted(entries)[-1]
    entries["z"] = entries.pop(last)


DATABASE: dict[str, tuple[str, Damage]] = {
    "a newer version": ("version", sql("PRAGMA user_version = 7")),
    "a database of another application": ("version", sql("PRAGMA application_id = 7")),
    "another journal mode": ("version", sql("PRAGMA journal_mode = DELETE")),
    "a value that a CHECK forbids": ("integrity", sql("UPDATE runs SET step = -1 WHERE id = 1")),
    "one table more": ("tables", sql("CREATE TABLE more (what TEXT) STRICT")),
    "one table less": ("tables", sql("DROP TABLE journal")),
    "one column more": ("tables", sql("ALTER TABLE runs ADD COLUMN what TEXT")),
    "one index less": ("tables", sql("DROP INDEX metrics_by_run")),
    "a trigger": ("tables", sql("CREATE TRIGGER planted AFTER DELETE ON examples BEGIN DELETE FROM runs; END")),
    "a view": ("tables", sql("CREATE VIEW planted AS SELECT json FROM examples")),
    "a row of a run that is not there": (
        "references",
        sql("INSERT INTO metrics (run, step, json) VALUES (99, 1, '{}')"),
    ),
    "a number that may be given again": ("numbers", sql("UPDATE sqlite_sequence SET seq = 1 WHERE name = 'examples'")),
    "another version in the table": ("state", sql("UPDATE state SET version = 1")),
    "another base": ("base", sql("UPDATE state SET base_sha256 = 'ab'")),
    "other pieces": ("shapes", sql("UPDATE state SET adapter = '{}'")),
    "JSON in another spelling": ("examples", sql(FIRST.format("json = json || ' '"))),
    "an example that is no object": ("examples", sql(FIRST.format("json = '[]'"))),
    "an id without a character": ("examples", sql(FIRST.format("id = ''"))),
    "a row less": ("rows", sql("DELETE FROM example_rows WHERE example = 1")),
    "rows with a gap": ("rows", sql("UPDATE example_rows SET row = 1 WHERE example = 1")),
    "a token below 0": (
        "rows",
        sql(
            "UPDATE example_rows SET tokens = CAST(x'ffffffff' || substr(tokens, 5) AS BLOB) WHERE example = 1",
        ),
    ),
    "a token that the model does not know": (
        "rows",
        sql(
            "UPDATE example_rows SET tokens = CAST(x'ff0f0000' || substr(tokens, 5) AS BLOB) WHERE example = 1",
        ),
    ),
    "a row longer than any plan": (
        "rows",
        sql(
            "UPDATE example_rows SET tokens = zeroblob(400), mask = CAST(x'00' || x'01' || zeroblob(98) AS BLOB) WHERE example = 1",
            FIRST.format("tokens = 100, trained_tokens = 1"),
        ),
    ),
    "a mask that begins with 1": (
        "rows",
        sql(
            "UPDATE example_rows SET mask = CAST(x'01' || substr(mask, 2) AS BLOB) WHERE example = 1",
            FIRST.format("trained_tokens = trained_tokens + 1"),
        ),
    ),
    "another number of tokens": ("rows", sql(FIRST.format("tokens = tokens + 1"))),
    "held out too early": ("split", sql(FIRST.format("split = 'validation'"))),
    "the fifth trained on": ("split", sql("UPDATE examples SET split = 'train' WHERE key = 5")),
    "one held out too many": ("split", sql("UPDATE examples SET split = 'validation' WHERE key = 12")),
    "held out, though for training only": (
        "split",
        sql("UPDATE examples SET use = 'train' WHERE split = 'validation'"),
    ),
    "a rejected row of which half is missing": (
        "rows",
        sql("UPDATE example_rows SET rejected_mask = x'0001' WHERE example = 1"),
    ),
    "a rejected mask that begins with 1": (
        "rows",
        sql(
            "UPDATE example_rows SET rejected_tokens = tokens, rejected_mask = CAST(x'01' || substr(mask, 2) AS BLOB)",
        ),
    ),
    "two unfinished runs": ("one run", sql(RUN)),
    "settings without training": ("runs", sql("UPDATE runs SET settings = '{}' WHERE id = 1")),
    "a seed below 0": ("runs", sql("UPDATE runs SET seed = -1 WHERE id = 1")),
    "more steps than it has": ("runs", sql("UPDATE runs SET steps = 5 WHERE id = 1")),
    "ended at no time": ("runs", sql("UPDATE runs SET ended_at = NULL WHERE id = 1")),
    "another parent": ("runs", sql("UPDATE runs SET parent = NULL WHERE id = 2")),
    "a list with a gap": ("run list", sql("DELETE FROM run_examples WHERE run = 1 AND position = 3")),
    "a list without its last but one": (
        "run list",
        sql(
            "DELETE FROM run_examples WHERE run = 2 AND position = 10",
            "UPDATE run_examples SET position = 10 WHERE run = 2 AND position = 11",
        ),
    ),
    "a step that is in no slot": (
        "cursor",
        sql(
            "UPDATE runs SET step = 4 WHERE id = 2",
            "DELETE FROM metrics WHERE run = 2 AND step = 5",
            "UPDATE runs SET cursor = " + CURSOR.format(0, 4, 8) + " WHERE id = 2",
            "DELETE FROM versions WHERE id = 2",
        ),
    ),
    "a cursor of another step": (
        "cursor",
        sql(
            "UPDATE slots SET cursor = replace(cursor, '\"step\":4', '\"step\":3') WHERE step = 4",
        ),
    ),
    "a cursor that goes back": (
        "cursor",
        sql("UPDATE slots SET cursor = " + CURSOR.format(0, 4, 999) + " WHERE step = 4"),
    ),
    "no slot of an unfinished run": ("cursor", sql("DELETE FROM slots")),
    "slots of a run that has ended": (
        "slots",
        sql("UPDATE runs SET ended_because = 'finished', ended_at = '2026' WHERE id = 2"),
    ),
    "a step that reports nothing": ("metrics", sql("DELETE FROM metrics WHERE run = 1 AND step = 2")),
    "a step that reports twice": (
        "metrics",
        sql(
            "INSERT INTO metrics (run, step, json) SELECT run, step, json FROM metrics WHERE run = 1",
        ),
    ),
    "a report before its commit": ("metrics", sql("UPDATE metrics SET step = 0 WHERE run = 1 AND step = 3")),
    "more left of a run that saw what was forgotten": (
        "forgotten run",
        sql(
            "UPDATE runs SET ended_because = 'example_forgotten' WHERE id = 1",
            "UPDATE versions SET run = NULL, source = 'there' WHERE id = 1",
            "UPDATE runs SET parent = NULL",
        ),
    ),
    "a version that saw what was forgotten": (
        "versions",
        sql(
            "UPDATE runs SET ended_because = 'example_forgotten', cursor = '{}' WHERE id = 1",
            "DELETE FROM metrics WHERE run = 1",
        ),
    ),
    "a version that was taken from its run": ("versions", sql("DELETE FROM versions WHERE id = 1")),
    "a version from nowhere": (
        "versions",
        sql("UPDATE versions SET run = NULL WHERE id = 1", "UPDATE runs SET parent = NULL"),
    ),
    "a version of a later step": ("versions", sql("UPDATE versions SET step = 7 WHERE id = 1")),
    "a version kept too long": ("versions", more_versions(4)),
    "a loss of a version that is not there": ("losses", sql(LOSS.format("99, printf('%064d', 0), 1.5"))),
    "a loss of a run that has ended": ("losses", sql(LOSS.format("-1, printf('%064d', 0), 1.5"))),
    "a loss on rows without a hash": ("losses", sql(LOSS.format("0, 'words', 1.5"))),
    "a loss below 0": ("losses", sql(LOSS.format("0, printf('%064d', 0), -1.0"))),
    "a file of another name": ("files", sql("UPDATE versions SET file = '../outside' WHERE id = 1")),
    "a file twice": ("files", sql("UPDATE slots SET file = (SELECT file FROM versions LIMIT 1) WHERE step = 5")),
}


@pytest.mark.parametrize("name", DATABASE)
def test_what_is_wrong_in_the_database_is_found(
    real_states: Path, tiny_core_bundle: Path, tmp_path: Path, name: str
) -> None:
    promise, damage = DATABASE[name]
    state = Path(shutil.copytree(real_states / "mesp", tmp_path / "state"))
    assert broken_promises(state, tiny_core_bundle) == set()
    damage(state)
    found = read_state(state, tiny_core_bundle)
    assert {one["promise"] for one in found["broken"]} == {promise}, found["broken"]


JOURNAL: dict[str, tuple[set[str], Damage]] = {
    "a step less": ({"journal", "metrics"}, sql("DELETE FROM journal WHERE step = 100")),
    "a slot of which it has no row": ({"journal", "cursor", "metrics"}, sql("DELETE FROM journal WHERE step >= 200")),
    "a slot with another cursor": ({"journal"}, sql("UPDATE slots SET cursor = " + CURSOR.format(1, 200, 401))),
    "a run that stands elsewhere": ({"cursor", "metrics"}, sql("DELETE FROM journal WHERE step = 203")),
}


@pytest.mark.parametrize("name", JOURNAL)
def test_what_is_wrong_in_a_journal_is_found(real_states: Path, tmp_path: Path, name: str) -> None:
    promises, damage = JOURNAL[name]
    state = Path(shutil.copytree(real_states / "mezo", tmp_path / "state"))
    report = read_state(state)
    assert (report["journal"], report["slots"], report["broken"]) == (203, 1, [])
    damage(state)
    found = read_state(state)
    assert {one["promise"] for one in found["broken"]} == promises, found["broken"]


FILES: dict[str, tuple[str, Damage]] = {
    "one byte more": ("size", tensor_file("slot", lambda data: data + b"\0", noted=False)),
    "one bit changed": ("hash", tensor_file("accepted", lambda data: data[:-1] + bytes([data[-1] ^ 1]), noted=False)),
    "no file": ("missing", lambda state: next(state.glob("slot_*")).unlink()),
    "bytes after the last tensor": ("header", tensor_file("slot", lambda data: data + bytes(4))),
    "a header that is not aligned": (
        "header",
        tensor_file("slot", lambda data: struct.pack("<Q", struct.unpack("<Q", data[:8])[0] + 1) + b" " + data[8:]),
    ),
    "a tensor of another shape": ("shapes", tensor_file("slot", header(one_column_less))),
    "a tensor of another name": ("shapes", tensor_file("accepted", header(renamed))),
    "NaN in an accepted adapter": ("finite", tensor_file("accepted", with_nan)),
    "a file that nothing names": ("folder", lambda state: (state / "notes.txt").write_text("")),
    "a folder": ("folder", lambda state: (state / "more").mkdir()),
    "a link": ("folder", lambda state: (state / "scratch").symlink_to("/dev/null")),
    "a file that others may read": ("mode", lambda state: (state / "state.sqlite").chmod(0o644)),
    "a lock that says something else": ("locks", lambda state: (state / "trainer.lock").write_text("[]")),
}


@pytest.mark.parametrize("name", FILES)
def test_what_is_wrong_with_files_is_found(real_states: Path, tmp_path: Path, name: str) -> None:
    promise, damage = FILES[name]
    state = Path(shutil.copytree(real_states / "mesp", tmp_path / "state"))
    before = set(os.listdir(state))
    damage(state)
    for made in set(os.listdir(state)) - before:
        if not (state / made).is_symlink() and (state / made).is_file():
            (state / made).chmod(0o600)
    found = read_state(state)
    assert {one["promise"] for one in found["broken"]} == {promise}, found["broken"]


def a_state(entries: dict[str, dict[str, object]]) -> str:
    return next(name for name in sorted(entries) if name.endswith(".m"))


def turned(entries: dict[str, dict[str, object]]) -> None:
    entry = entries[a_state(entries)]
    entry["shape"] = entry["shape"][::-1]  # type: ignore[index]


def called_otherwise(entries: dict[str, dict[str, object]]) -> None:
    name = a_state(entries)
    pairs = [(name + "oment" if one == name else one, entry) for one, entry in entries.items()]
    entries.clear()
    entries.update(pairs)


@pytest.mark.parametrize("change", [turned, called_otherwise])
def test_state_that_the_method_does_not_keep_is_found_by_its_plan(
    real_states: Path, tiny_core_bundle: Path, tmp_path: Path, change: Callable[[dict[str, dict[str, object]]], None]
) -> None:
    state = Path(shutil.copytree(real_states / "mesp", tmp_path / "state"))
    tensor_file("slot", header(change))(state)
    assert broken_promises(state) == set()
    assert broken_promises(state, tiny_core_bundle) == {"kept state"}


def test_a_damaged_page_is_found(real_states: Path, tmp_path: Path) -> None:
    state = Path(shutil.copytree(real_states / "mesp", tmp_path / "state"))
    data = bytearray((state / "state.sqlite").read_bytes())
    data[2 * 4096 : 3 * 4096] = bytes(range(256)) * 16
    (state / "state.sqlite").write_bytes(data)
    assert broken_promises(state) & {"integrity", "readable"}


def test_what_a_killed_process_left_is_told_apart(real_states: Path, tmp_path: Path) -> None:
    state = Path(shutil.copytree(real_states / "mesp", tmp_path / "state"))
    names = ["accepted_00000009_0123abcd.safetensors", "scratch", "slot_00000007_0123abcd.safetensors.partial"]
    for name in names:
        (state / name).write_bytes(b"half of a")
        (state / name).chmod(0o600)
    found = read_state(state)
    assert (found["left"], found["broken"]) == (names, [])


def test_a_folder_in_which_no_state_was_made_yet_breaks_nothing(tmp_path: Path) -> None:
    for name in ("files.lock", "state.sqlite"):
        (tmp_path / name).touch(0o600)
    found = read_state(tmp_path)
    assert (found["made"], found["broken"]) == (False, [])
