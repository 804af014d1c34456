# SPDX-License-Identifier: Apache-2.0
"""Paths with bytes that are no UTF-8, which Linux allows, and with half of a surrogate pair, which nothing does: each verb refuses
them by name. The device core, JSON and a bundle's manifest hold UTF-8 only. So it is with URLs, which are no paths.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.bad_inputs.asking import Lab
from tests.unit.bad_inputs.calls_with_paths import READ, WRITTEN

NAMES = {"bytes": os.fsdecode(b"caf\xe9"), "half of a pair": "caf\ud800"}
REPORTS = [
    "command('train', bundle, '--state', state, '--run-steps', 1, '--csv', PATH)",
    "command('train', bundle, '--state', state, '--run-steps', 1, '--plot', PATH + '.svg')",
    "command('inspect', bundle, '--plot', PATH + '.svg')",
    "command('build', 'out', '--model', model_folder, '--zip', PATH)",
    "command('build', 'out', '--model', PATH)",
    "command('doctor', '--state', PATH)",
    "command('versions', bundle, '--state', PATH)",
    "command('export', bundle, PATH, '--state', state, '--base')",
    "command('pack', bundle, PATH)",
    "command('install', PATH, 'out')",
    "command('export-base', bundle, PATH)",
]


@pytest.fixture(scope="module")
def place(state: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paths")
    shutil.copytree(state, folder / "state")
    return folder


@pytest.fixture(scope="module")
def lab(stories_bundle: Path, stories: Path, place: Path) -> Iterator[Lab]:
    with Lab(stories_bundle, stories, place) as lab:
        yield lab


@pytest.mark.parametrize("call", [*READ, *WRITTEN, *REPORTS])
@pytest.mark.parametrize("kind", NAMES)
def test_a_path_that_is_no_text_is_refused_and_nothing_is_made(lab: Lab, place: Path, call: str, kind: str) -> None:
    before = sorted(map(os.fsencode, place.iterdir()))
    answer = lab.ask(call.replace("PATH", repr(NAMES[kind])))
    assert answer["ours"], f"{call}: {answer}"
    assert answer["raised"], f"{call}: taken"
    assert ("caf\\udce9" if kind == "bytes" else "caf\\ud800") in answer["said"]
    assert "codec" not in answer["said"]
    assert sorted(map(os.fsencode, place.iterdir())) == before


@pytest.mark.parametrize("call", [*READ, *WRITTEN, *REPORTS])
def test_a_url_is_refused_and_no_folder_is_named_after_its_scheme(lab: Lab, place: Path, call: str) -> None:
    before = sorted(place.iterdir())
    answer = lab.ask(call.replace("PATH", repr("file:///nosuch/alice")))
    assert answer["ours"], f"{call}: {answer}"
    assert answer["raised"], f"{call}: taken"
    assert "file:/" in answer["said"]
    if call in WRITTEN:
        assert "got a URL, 'file:///nosuch/alice" in answer["said"]
    assert sorted(place.iterdir()) == before


def test_a_working_folder_of_such_bytes_is_named_for_a_relative_path(lab: Lab, place: Path, tmp_path: Path) -> None:
    here = tmp_path / NAMES["bytes"]
    here.mkdir()
    try:
        lab.ask(f"os.chdir({str(here)!r})")
        answer = lab.ask("PersonalModel.open(bundle, 'alice')")
        assert (answer["raised"], answer["ours"]) == ("ConfigError", True), answer
        assert "caf\\udce9" in answer["said"]
        assert list(here.iterdir()) == []
        lab.ask(f"os.chdir({str(tmp_path)!r})")
        here.rmdir()
        gone = tmp_path / "gone"
        gone.mkdir()
        lab.ask(f"os.chdir({str(gone)!r})")
        gone.rmdir()
        answer = lab.ask("PersonalModel.open(bundle, 'alice')")
        assert (answer["raised"], answer["ours"]) == ("ConfigError", True), answer
    finally:
        lab.ask(f"os.chdir({str(place)!r})")
