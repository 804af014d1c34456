# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile state folders: a StateError or the state as it was; never a crash, never a read outside."""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bespoke.errors import StateError
from tests.malformed_bundles.states import DEEP, edit, filled, folder, read_all, the_slot
from tests.native.state.states import add, open_state, summary

__all__ = ["filled", "folder"]


SQLITE_HEADER = 100
WAL_HEADER = 32 + 24  # bytes of the log's header and of its first frame's


@pytest.fixture(scope="module")
def whole(filled: Path) -> Any:
    with open_state(filled) as store:
        return summary(store)


def refused_or_whole(folder: Path, whole: Any) -> bool:
    """True where the state is refused with a StateError that says everything."""
    try:
        found = read_all(folder)
    except StateError as error:
        assert all([error.subject, error.got, error.expected, error.next_step])  # noqa: PT017, one of two outcomes
        return True
    assert found == whole
    return False


def the_adapter(folder: Path) -> Path:
    return max(folder.glob("accepted_*"))


def flipped(content: bytes, at: int, mask: int) -> bytes:
    return content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :]


def try_each(folder: Path, filled: Path, name: str, variants: dict[str, bytes], whole: Any) -> list[str]:
    """Names of the variants of one file that were taken for the whole state."""
    taken = []
    for label, content in variants.items():
        shutil.rmtree(folder)
        shutil.copytree(filled, folder)
        (folder / name).write_bytes(content)
        if not refused_or_whole(folder, whole):
            taken.append(label)
    return taken


@pytest.mark.parametrize("mask", [0xFF, pytest.param(0x01, marks=pytest.mark.slow)])
def test_every_header_byte_of_the_database_flipped(folder: Path, filled: Path, whole: Any, mask: int) -> None:
    content = (filled / "state.sqlite").read_bytes()
    variants = {str(at): flipped(content, at, mask) for at in range(SQLITE_HEADER)}
    taken = {int(at) for at in try_each(folder, filled, "state.sqlite", variants, whole)}
    harmless = {
        18,  # version for writers: asking for WAL rewrites it
        *range(24, 32),  # change counter and size in pages, rewritten when the log is emptied
        *range(40, 44),  # cookie of the schema
        *range(44, 47),  # SQLite reads only the lowest bits of the schema's format and the text's encoding
        *range(48, 52),  # suggested size of the cache
        *range(56, 60),  # 0 means UTF-8 as 1 does
        *range(72, 100),  # reserved, version-valid-for, version of SQLite
    }
    assert taken <= harmless, sorted(taken - harmless)
    assert not taken & {*range(18), *range(60, 64), *range(68, 72)}  # magic, our version, our mark


@pytest.mark.parametrize("which", [the_slot, the_adapter])
@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_every_header_byte_of_a_tensor_file_flipped(
    folder: Path, filled: Path, whole: Any, which: Callable[[Path], Path], every: int
) -> None:
    name = which(filled).name
    content = (filled / name).read_bytes()
    header = 8 + struct.unpack("<Q", content[:8])[0]
    variants = {str(at): flipped(content, at, 0xFF) for at in range(0, header, every)}
    variants |= {"first of data": flipped(content, header, 1), "last": flipped(content, len(content) - 1, 1)}
    assert try_each(folder, filled, name, variants, whole) == []


def test_every_header_byte_of_the_log_flipped_gives_an_earlier_state_or_an_error(tmp_path: Path) -> None:
    """A log is taken up to its first wrong checksum: that is how SQLite finds the end after a crash."""
    live = tmp_path / "live"
    with open_state(live) as store:
        states = [summary(store)]
        for number in range(6):
            add(store, f"text {number}")
            states.append(summary(store))
        copy = Path(shutil.copytree(live, tmp_path / "copy"))
    content = (copy / "state.sqlite-wal").read_bytes()
    assert len(content) > WAL_HEADER
    earlier = 0
    for at in range(WAL_HEADER):
        folder = tmp_path / f"flip {at}"
        shutil.copytree(copy, folder)
        (folder / "state.sqlite-wal").write_bytes(flipped(content, at, 0xFF))
        try:
            found = read_all(folder)
        except StateError:
            continue
        assert found in states
        earlier += found != states[-1]
    assert earlier > 0


def cuts(size: int) -> list[int]:
    near = {0, 1, 7, 8, 9, 15, 16, 50, 99, 100, 101, 511, 512, 1000, 4095, 4096, 4097, size // 2, size - 4096, size - 1}
    return sorted(cut for cut in near if 0 <= cut < size)


@pytest.mark.parametrize("kind", ["database", "slot", "adapter"])
def test_truncated_files(folder: Path, filled: Path, whole: Any, kind: str) -> None:
    path = {"database": filled / "state.sqlite", "slot": the_slot(filled), "adapter": the_adapter(filled)}[kind]
    content = path.read_bytes()
    variants = {f"cut at {cut}": content[:cut] for cut in cuts(len(content))}
    variants["longer"] = content + b"\0" * 7
    # SQLite reads what is missing of the last page as zeros, which its last byte may be; what follows that page is none of its own.
    harmless = ([] if content[-1] else [f"cut at {len(content) - 1}"]) + ["longer"]
    assert try_each(folder, filled, path.name, variants, whole) == (harmless if kind == "database" else [])


@pytest.mark.parametrize("kind", ["database", "slot", "adapter"])
@pytest.mark.parametrize("instead", ["nothing", "link inside", "link outside", "folder", "pipe", "zeros", "text"])
def test_something_else_in_the_place_of_a_file(folder: Path, kind: str, instead: str) -> None:
    path = {"database": folder / "state.sqlite", "slot": the_slot(folder), "adapter": the_adapter(folder)}[kind]
    size = path.stat().st_size
    target = (folder if instead == "link inside" else folder.parent) / "target"
    path.rename(target)
    if instead.startswith("link"):
        path.symlink_to(target)
    elif instead == "folder":
        path.mkdir()
    elif instead == "pipe":
        os.mkfifo(path)
    elif instead == "zeros":
        path.write_bytes(bytes(size))
    elif instead == "text":
        path.write_text("no such thing " * 50)
    content = target.read_bytes()
    with pytest.raises(StateError):
        read_all(folder)
    assert target.read_bytes() == content


@pytest.mark.parametrize(
    "name", ["state.sqlite-wal", "state.sqlite-shm", "state.sqlite-journal", "files.lock", "trainer.lock"]
)
@pytest.mark.parametrize("instead", ["link", "folder", "pipe"])
def test_something_else_in_the_place_of_a_side_file(folder: Path, name: str, instead: str) -> None:
    target = folder.parent / "target"
    target.write_bytes(b"outside")
    path = folder / name
    path.unlink(missing_ok=True)
    if instead == "link":
        path.symlink_to(target)
    elif instead == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(StateError), open_state(folder) as store, store.trainer_lock():
        pass
    assert target.read_bytes() == b"outside"


def test_a_planted_rollback_journal_is_not_played_back(folder: Path, whole: Any) -> None:
    """It may name a second journal anywhere, which SQLite would open and delete."""
    outside = folder.parent / "outside-journal"
    outside.write_bytes(b"not yours")
    name = str(outside).encode()
    magic = bytes.fromhex("d9d505f920a163d7")
    tail = struct.pack(">I", 1) + name + struct.pack(">II", len(name), sum(name)) + magic
    page = struct.pack(">I", 1) + b"\0" * 4096 + struct.pack(">I", 0)
    head = (magic + struct.pack(">iIIII", 1, 0, 1, 512, 4096)).ljust(512, b"\0")
    (folder / "state.sqlite-journal").write_bytes(head + page + tail)
    with pytest.raises(StateError, match="journal"):
        open_state(folder)
    assert outside.read_bytes() == b"not yours"
    (folder / "state.sqlite-journal").unlink()
    assert read_all(folder) == whole


@pytest.mark.parametrize("lost", [["state.sqlite"], ["state.sqlite", "files.lock"]])
def test_a_lost_database_is_no_new_state(folder: Path, lost: list[str]) -> None:
    for name in lost:
        (folder / name).unlink()
    kept = the_adapter(folder).read_bytes()
    with pytest.raises(StateError, match="no database"):
        open_state(folder)
    assert the_adapter(folder).read_bytes() == kept


@pytest.mark.parametrize("version", [0, 7, 2**31 - 1, -1])
def test_another_version_is_refused_and_named(folder: Path, version: int) -> None:
    edit(folder, f"PRAGMA user_version = {version}")
    with pytest.raises(StateError, match=f"version {version}"):
        open_state(folder)


EDITS = {
    "version in the table": "UPDATE state SET version = 9",
    "no row of the state": "DELETE FROM state",
    "another application": "PRAGMA application_id = 7",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON examples BEGIN DELETE FROM runs; END",
    "a view": "CREATE VIEW v AS SELECT 1",
    "a table more": "CREATE TABLE more (x)",
    "a table less": "DROP TABLE metrics",
    "an index less": "DROP INDEX metrics_by_run",
    "two unfinished runs": "UPDATE runs SET ended_because = NULL",
    "split that is none": "UPDATE examples SET split = 'test'",
    "example that is no JSON": "UPDATE examples SET json = '{'",
    "example that is a list": "UPDATE examples SET json = '[]'",
    "example nested deep": f"UPDATE examples SET json = '{DEEP}'",
    "example with a huge number": f"UPDATE examples SET json = '{'9' * 9000}'",
    "example that is no UTF-8": "UPDATE examples SET json = CAST(x'ff' AS TEXT)",
    "example too large": "UPDATE example_rows SET tokens = zeroblob(40000000), mask = zeroblob(10000000) WHERE example = 1",
    "tokens without mask": "UPDATE example_rows SET mask = x''",
    "no tokens": "UPDATE example_rows SET tokens = x'', mask = x''",
    "half a token": "UPDATE example_rows SET tokens = x'0000000000'",
    "example without rows": "DELETE FROM example_rows WHERE example = 1",
    "settings that are none": "UPDATE runs SET settings = '7'",
    "cursor that is none": "UPDATE runs SET cursor = 'null'",
    "cursor of a slot": "UPDATE slots SET cursor = 'nothing'",
    "negative step": "UPDATE runs SET step = -1",
    "half a value": "UPDATE journal SET recorded = x'000000'",
    "metrics": "UPDATE metrics SET json = '\"x\"'",
    "metrics of the journal": f"UPDATE journal SET metrics = '{DEEP}'",
    "metrics of an adapter": "UPDATE versions SET metrics = ''",
    "hash of a slot": "UPDATE slots SET sha256 = 'x'",
    "size of a slot": "UPDATE slots SET bytes = 9223372036854775807",
    "size 0": "UPDATE slots SET bytes = 0",
    "negative size": "UPDATE slots SET bytes = -1",
    "slot elsewhere": "UPDATE slots SET file = '../outside' || id",
    "slot at an absolute place": "UPDATE slots SET file = '/etc/passwd' || id",
    "slot with NUL": "UPDATE slots SET file = 'slot_00000001_00000000.safetensors' || char(0) || id",
    "adapter elsewhere": "UPDATE versions SET file = '/dev/zero'",
    "adapter of a run that is none": "UPDATE versions SET run = 99",
}


@pytest.mark.parametrize("what", EDITS)
def test_a_database_that_says_what_ours_never_says(folder: Path, what: str) -> None:
    edit(folder, EDITS[what])
    with pytest.raises(StateError) as caught:
        read_all(folder)
    assert caught.value.next_step


def test_a_refused_state_is_left_as_it_is(folder: Path) -> None:
    edit(folder, "PRAGMA user_version = 7")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(StateError):
        open_state(folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name in before} == before


def test_a_database_of_somebody_else_is_not_touched(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "state.sqlite")
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    before = (tmp_path / "state.sqlite").read_bytes()
    with pytest.raises(StateError, match="application"):
        open_state(tmp_path)
    assert (tmp_path / "state.sqlite").read_bytes() == before
