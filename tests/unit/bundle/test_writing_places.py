# SPDX-License-Identifier: Apache-2.0
"""Where a bundle may be written, what it may replace, and what becomes of what a killed writer left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bespoke.bundle.reader import read_bundle
from bespoke.bundle.writer import BundleWriter
from bespoke.errors import BundleError
from bespoke.format import whole_folder
from tests.unit.bundle.example import manifest_document, write_example
from tests.unit.cli.commands import bespoke

WRITES_UNTIL_KILLED = """
import sys, time
from bespoke.bundle.writer import BundleWriter
writer = BundleWriter(sys.argv[1])
writer.add_bytes("plans/a.json", b"{}")
print(writer.path_for("plans/a.json"), flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_example(tmp_path / "a.bundle")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_build_left_is_removed_and_a_living_build_is_left_alone(folder: Path, tmp_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITES_UNTIL_KILLED, str(folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        written = Path(writer.stdout.readline().strip())
        write_example(folder)
        assert written.exists()
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert written.exists()
        write_example(folder)
        assert names(tmp_path) == ["a.bundle"]
    finally:
        writer.kill()
        writer.wait()


def test_folders_of_other_names_are_no_leftovers(folder: Path, tmp_path: Path) -> None:
    for name in (".a.bundle.mine.partial", ".b.bundle.abcdefgh.partial", "a.bundle.abcdefgh.partial"):
        (tmp_path / name).mkdir()
    before = names(tmp_path)
    write_example(folder)
    assert names(tmp_path) == before


def test_an_old_bundle_is_replaced_also_where_the_file_system_cannot_exchange(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_folder, "_exchange", lambda one, other: False)
    write_example(folder, {**manifest_document(), "context_length": 32})
    with read_bundle(folder) as bundle:
        assert bundle.manifest.context_length == 32
    assert names(tmp_path) == ["a.bundle"]


def test_a_death_between_two_renames_loses_no_bundle(folder: Path, tmp_path: Path) -> None:
    folder.rename(tmp_path / ".a.bundle.abcdefgh.old")
    with BundleWriter(folder):
        assert (folder / "manifest.json").is_file()
    assert names(tmp_path) == ["a.bundle"]


def test_a_bundle_with_a_state_in_it_is_not_replaced(folder: Path, tmp_path: Path) -> None:
    (folder / "state.sqlite").write_bytes(b"a year of examples")
    with pytest.raises(BundleError, match=r"state in it \('state\.sqlite'\).*a folder of its own"):
        BundleWriter(folder)
    assert (folder / "state.sqlite").read_bytes() == b"a year of examples"
    assert names(tmp_path) == ["a.bundle"]


def test_what_comes_into_the_folder_during_a_build_is_not_lost(folder: Path) -> None:
    with read_bundle(folder) as bundle:
        manifest, content = bundle.manifest, {name: bundle.read(name) for name in bundle.manifest.files}
    with BundleWriter(folder) as writer:
        for name, data in content.items():
            writer.add_bytes(name, data)
        (folder / "letter.txt").write_text("dear")
        with pytest.raises(BundleError, match=r"foreign file in it \('letter"):
            writer.finish(manifest)
    assert (folder / "letter.txt").read_text() == "dear"


@pytest.mark.parametrize(
    "manifest", ["{}", "[]", '{"format": "another", "files": {}}', "no json", '{"format": "bespoke-bundle"}']
)
def test_a_folder_with_a_manifest_of_something_else_is_not_replaced(tmp_path: Path, manifest: str) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "manifest.json").write_text(manifest)
    with pytest.raises(BundleError, match="no bundle"):
        BundleWriter(tmp_path / "app")


@pytest.mark.parametrize("place", ["/proc/bespoke/out", "letter.txt", "letter.txt/out", "n" * 300, "", "a\0b"])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(place: str, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    before = names(tmp_path)
    out = str(tmp_path / place) if place and "\0" not in place else place
    with pytest.raises(BundleError) as caught:
        BundleWriter(out)
    assert caught.value.next_step
    assert names(tmp_path) == before
    assert (tmp_path / "letter.txt").read_text() == "dear"


def test_the_folder_that_the_process_works_in_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "above" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "above" / "here")
    for place in (".", "..", tmp_path / "above"):
        with pytest.raises(BundleError, match=r"works in|no bundle"):
            BundleWriter(place)
    assert os.getcwd() == str(tmp_path / "above" / "here")


@pytest.mark.parametrize("place", ["model/config.json/out", "/proc/bespoke/out", "model"])
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_build_refuses_an_impossible_place_with_one_line(
    place: str, dry: tuple[str, ...], stories: Path, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    for file in stories.iterdir():
        (tmp_path / "model" / file.name).symlink_to(file)
    answer = bespoke(
        "build", tmp_path / place, "--model", tmp_path / "model", "--licence", "MIT", *dry, "--format", "json"
    )
    assert (answer.code, answer.json["error"]["kind"]) == (8, "BundleError")
    assert names(tmp_path) == ["model"]


def test_build_refuses_an_impossible_folder_for_zips_before_the_work(stories: Path, tmp_path: Path) -> None:
    answer = bespoke("build", tmp_path / "out", "--model", stories, "--zip", "/proc/bespoke", "--format", "json")
    assert (answer.code, answer.json["error"]["kind"]) == (8, "BundleError")
    assert names(tmp_path) == []
