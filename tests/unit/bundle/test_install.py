# SPDX-License-Identifier: Apache-2.0
"""A bundle installed from its archives: the same files, in the place of an older one or of nothing, or a refusal and no change."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bespoke import install, pack
from bespoke.bundle.reader import read_bundle
from bespoke.bundle.signature import generate_key, sign_bundle
from bespoke.bundle.stored_zip import write_zip
from bespoke.core import find
from bespoke.errors import BundleError, ConfigError, SignatureError
from tests.malformed_bundles.hostile import ZIPS
from tests.unit.bundle.example import write_example
from tests.unit.bundle.replaced import READER, WEIGHTS, contents, rebuilt
from tests.unit.cli.commands import bespoke

LICENCE = "licences/LICENSE.txt"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """What was built first; read it, do not change it."""
    return write_example(tmp_path / "built" / "old.bundle")


@pytest.fixture
def new(old: Path) -> Path:
    """The same with other weights in one file."""
    folder = write_example(old.parent / "new.bundle")
    rebuilt(folder)
    return folder


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where a bundle is installed; nothing else is next to it."""
    (tmp_path / "app").mkdir()
    return tmp_path / "app" / "chat.bundle"


def alone(place: Path) -> bool:
    return [path.name for path in place.parent.iterdir()] == [place.name]


def test_archives_in_any_order_become_the_bundle(old: Path, place: Path, tmp_path: Path) -> None:
    weights, method = pack(old, tmp_path / "zips")
    for given in ([weights, method], [method, weights]):  # the second time in the place of the first
        assert install(given, place) == place
        assert contents(place) == contents(old)
        assert alone(place)
        assert place.stat().st_mode & 0o777 == 0o755


def test_a_delta_holds_what_differs_and_the_rest_is_kept(old: Path, new: Path, place: Path, tmp_path: Path) -> None:
    install(pack(old, tmp_path / "zips"), place)
    kept = {path: path.stat().st_ino for path in place.rglob("*") if path.is_file()}
    (delta,) = pack(new, tmp_path / "zips", since=old)
    with read_bundle(new) as opened:
        changed = {WEIGHTS, *opened.unlisted}
    assert delta.stat().st_size < sum((new / name).stat().st_size for name in changed) + 2**14 * (len(changed) + 1)
    install(delta, place)
    assert contents(place) == contents(new)
    assert alone(place)
    for path, inode in kept.items():
        assert (path.stat().st_ino == inode) == (path.relative_to(place).as_posix() not in changed)


def test_a_method_archive_alone_goes_over_a_bundle_of_the_same_weights(old: Path, place: Path, tmp_path: Path) -> None:
    install(pack(old, tmp_path / "zips"), place)
    install(tmp_path / "zips" / "method.zip", place)
    assert contents(place) == contents(old)
    with pytest.raises(BundleError, match="no bundle to update"):
        install(tmp_path / "zips" / "method.zip", place.with_name("elsewhere"))
    assert alone(place)


def refused(place: Path, archives: object, match: str, **trust: object) -> None:
    """Nothing changes, nothing is left."""
    before = contents(place) if place.exists() else None
    with pytest.raises(BundleError, match=match):
        install(archives, place, **trust)  # type: ignore[arg-type]
    assert (contents(place) if place.exists() else None) == before
    assert [path for path in place.parent.iterdir() if path != place] == []


def test_a_delta_over_another_bundle_is_refused(old: Path, new: Path, place: Path, tmp_path: Path) -> None:
    (delta,) = pack(new, tmp_path / "zips", since=old)
    refused(place, delta, "no bundle to update")
    third = write_example(old.parent / "third.bundle")
    (third / LICENCE).write_bytes(b"Another licence\n")
    install(pack(old, tmp_path / "zips"), place)
    (place / LICENCE).write_bytes(b"Damaged file.\n\n")  # the same size as before
    refused(place, delta, f"{LICENCE}.*sha256.*the bundle that it was packed against")
    (place / LICENCE).write_bytes(b"short")
    refused(place, delta, f"{LICENCE}.*5 bytes")
    (place / LICENCE).unlink()
    refused(place, delta, LICENCE)


def test_a_link_in_the_old_bundle_is_not_taken_over(old: Path, new: Path, place: Path, tmp_path: Path) -> None:
    install(pack(old, tmp_path / "zips"), place)
    (delta,) = pack(new, tmp_path / "zips", since=old)
    (place / LICENCE).rename(tmp_path / "outside")
    (place / LICENCE).symlink_to(tmp_path / "outside")
    refused(place, delta, "not a link")


@pytest.mark.parametrize("kind", ZIPS)
def test_archives_of_another_form_are_refused(kind: str, old: Path, place: Path, tmp_path: Path) -> None:
    ZIPS[kind](old, tmp_path / "a.zip")
    refused(place, tmp_path / "a.zip", "a.zip")
    install(pack(old, tmp_path / "zips"), place)
    refused(place, tmp_path / "a.zip", "a.zip")
    assert not (tmp_path / "more").exists()


def without(old: Path, place: Path, name: str, data: bytes | None = None, more: str = "") -> Path:
    """An archive of a bundle that lacks a file, has other bytes in it, or one more."""
    names = sorted(path.relative_to(old).as_posix() for path in old.rglob("*") if path.is_file())
    files = [(each, old / each) for each in names if each != name]
    if data is not None or more:
        (place.parent.parent / "file").write_bytes(data or b"more")
        files.append((more or name, place.parent.parent / "file"))
    write_zip(place.parent.parent / "a.zip", files)
    return place.parent.parent / "a.zip"


def test_files_that_are_missing_changed_or_unlisted_are_refused(old: Path, place: Path) -> None:
    size = (old / LICENCE).stat().st_size
    refused(place, without(old, place, LICENCE), "no such entry")
    refused(place, without(old, place, LICENCE, b"x" * size), "sha256")
    refused(place, without(old, place, LICENCE, b"x" * (size + 1)), f"{size + 1} bytes")
    refused(place, without(old, place, "", more="z/stranger"), "does not list")
    for name in ("manifest.json", "manifest.sha256"):
        refused(place, without(old, place, name), "no such entry")
    refused(place, without(old, place, "manifest.sha256", b"0" * 79), "sum")


def test_an_archive_given_twice_none_and_one_that_is_not_there_are_refused(
    old: Path, place: Path, tmp_path: Path
) -> None:
    weights, method = pack(old, tmp_path / "zips")
    refused(place, [weights, method, weights], "another archive has as well")
    refused(place, [weights, tmp_path / "nothing.zip"], "No such file")
    with pytest.raises(ConfigError, match="the zips of a bundle"):
        install([], place)
    os.mkfifo(tmp_path / "pipe")
    refused(place, [tmp_path / "pipe"], "no regular file")


def test_pin_and_signature_are_held_against_the_archives(old: Path, new: Path, place: Path, tmp_path: Path) -> None:
    private, public = generate_key()
    sign_bundle(new, private)
    before = install(pack(old, tmp_path / "old"), place)
    archives = pack(new, tmp_path / "new")
    pin = hashlib.sha256((new / "manifest.json").read_bytes()).hexdigest()
    for trust, what in (
        ({"pin_sha256": "0" * 64}, "pinned"),
        ({"public_key": generate_key()[1]}, "another key"),
        ({"require_authenticated": True}, "neither"),
    ):
        with pytest.raises(SignatureError, match=what):
            install(archives, place, **trust)  # type: ignore[arg-type]
        assert contents(before) == contents(old)
    for wrong in ({"pin_sha256": ""}, {"pin_sha256": pin[1:]}, {"public_key": ""}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            install(archives, place, **wrong)  # type: ignore[arg-type]
    install(archives, place, pin_sha256=pin, public_key=public, require_authenticated=True)
    assert contents(place) == contents(new)
    with pytest.raises(SignatureError, match="no signature"):
        install(tmp_path / "old" / "method.zip", place, public_key=public)


@pytest.mark.parametrize("what", ["another folder", "a state in it", "a file"])
def test_what_is_no_bundle_is_left_alone(what: str, old: Path, place: Path, tmp_path: Path) -> None:
    archives = pack(old, tmp_path / "zips")
    if what == "a file":
        place.write_text("mine")
    else:
        (install(archives, place) if what == "a state in it" else place).mkdir(exist_ok=True)
        (place / "state.sqlite").write_text("years of work")
    with pytest.raises(BundleError, match=r"no bundle|foreign file|a file"):
        install(archives, place)
    assert alone(place)
    assert what == "a file" or (place / "state.sqlite").read_text() == "years of work"


def test_a_reader_goes_on_with_the_old_files(old: Path, new: Path, place: Path, tmp_path: Path) -> None:
    install(pack(old, tmp_path / "zips"), place)
    command = [sys.executable, "-c", READER, str(place), WEIGHTS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "open\n"
        install(pack(new, tmp_path / "zips", since=old), place)
        assert contents(place) == contents(new)
        reader.stdin.write("\n")
        reader.stdin.flush()
        assert "read\n" in iter(reader.stdout.readline, "")
        reader.stdin.write("\n")
    assert reader.returncode == 0
    install(tmp_path / "zips" / "delta.zip", place)
    assert alone(place)  # what the reader had is removed by the next


def test_the_tool_installs(old: Path, place: Path, tmp_path: Path) -> None:
    core = find().path
    assert core is not None

    archives = [str(path) for path in pack(old, tmp_path / "zips")]

    def ask(**more: object) -> tuple[dict[str, str], int]:
        request = {"verb": "install", "folder": str(place), "archives": archives, **more}
        done = subprocess.run([core], input=json.dumps(request) + "\n", capture_output=True, text=True)
        return json.loads(done.stdout), done.returncode

    said, status = ask(pin_sha256="0" * 64)
    assert (said["kind"], status) == ("SignatureError", 9)
    assert ask() == ({"event": "report", "report": {"folder": str(place)}}, 0)
    assert contents(place) == contents(old)
    assert ask(public_key="00")[0]["event"] == "error"


def test_the_command_line_packs_and_installs(old: Path, new: Path, place: Path, tmp_path: Path) -> None:
    zips = tmp_path / "zips"
    packed = bespoke("pack", "--format", "json", str(old), str(zips)).ok().json["archives"]
    assert [Path(archive["file"]).name for archive in packed] == ["weights.zip", "method.zip"]
    bespoke("install", str(zips / "weights.zip"), str(zips / "method.zip"), str(place)).ok()
    assert "delta.zip" in bespoke("pack", str(new), str(zips), "--since", str(old)).ok().out
    assert bespoke("install", "--format", "json", str(zips / "delta.zip"), str(place)).ok().json == {
        "bundle": str(place)
    }
    assert contents(place) == contents(new)
