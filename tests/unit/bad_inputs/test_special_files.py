# SPDX-License-Identifier: Apache-2.0
"""What is no plain file stands where one is expected: an error of ours at once. Opening a pipe waits for its other end, perhaps for
ever, and reading a device may never end.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.bad_inputs.asking import Lab
from tests.unit.bad_inputs.calls_with_paths import READ, WRITTEN


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is at most 107 bytes long
    try:
        socket.socket(socket.AF_UNIX).bind(path.name)
    finally:
        os.chdir(here)


KINDS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": _socket,
    "a dangling link": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder": Path.mkdir,
    "nothing": lambda path: None,
}

FREE = ("a folder", "nothing")


def made(kind: str, path: Path) -> Path:
    KINDS[kind](path)
    return path


@pytest.fixture(scope="module")
def lab(stories_bundle: Path, stories: Path, state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("special")
    shutil.copytree(state, folder / "state")
    with Lab(stories_bundle, stories, folder) as lab:
        yield lab


def refused(lab: Lab, call: str) -> None:
    answer = lab.ask(call)
    assert answer["ours"], f"{call}: {answer}"
    assert answer["raised"], f"{call}: taken"


@pytest.mark.parametrize("call", READ)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_refused_where_one_is_read(lab: Lab, tmp_path: Path, call: str, kind: str) -> None:
    path = tmp_path / "special"
    ending = call.partition("PATH + '")[2].partition("'")[0]
    made(kind, path.with_name(path.name + ending))
    refused(lab, call.replace("PATH", repr(str(path))))


@pytest.mark.parametrize("call", WRITTEN)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_folder_is_refused_where_one_is_written(lab: Lab, tmp_path: Path, call: str, kind: str) -> None:
    asked = call.replace("PATH", repr(str(made(kind, tmp_path / "special"))))
    answer = lab.ask(asked)
    assert answer["ours"], f"{asked}: {answer}"
    assert answer["raised"] or kind in FREE, f"{asked}: taken"


# Files of a folder that is read, and what reads it. Some need not be there; then what is no file may be passed over.
INSIDE = {
    "model": (
        "Personalizer(PATH).estimate()",
        (
            "config.json",
            "model.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
            "LICENSE",
            "README.md",
        ),
    ),
    "merged": (
        "model.export_merged('out', PATH, base=True)",
        (
            "config.json",
            "model.safetensors",
            "model.safetensors.index.json",
            "tokenizer.json",
            "generation_config.json",
            "LICENSE",
        ),
    ),
    "bundle": (
        "PersonalModel.open(PATH, state).close()",
        (
            "manifest.json",
            "manifest.sha256",
            "signature",
            "text/tokenizer.bin",
            "adapter/initial.safetensors",
            "weights",
        ),
    ),
    "signed": ("sign_bundle(PATH, generate_key())", ("manifest.json",)),
    "state": (
        "PersonalModel.open(bundle, PATH).close()",
        (
            "state.sqlite",
            "state.sqlite-wal",
            "state.sqlite-shm",
            "state.sqlite-journal",
            "files.lock",
            "trainer.lock",
            "hashes",
            "scratch",
        ),
    ),
    "adapter": ("model.import_adapter(PATH, trust_base=True)", ("adapter_config.json", "adapter_model.safetensors")),
}


# A model takes seconds to read: of its files two, and one kind, are enough where only parts of the counts run.
FEW = ("tokenizer.json", "model.safetensors.index.json")
ROWS = [
    pytest.param(
        folder,
        name,
        kind,
        marks=[pytest.mark.slow] if folder in ("model", "merged") and (kind != "a pipe" or name not in FEW) else [],
    )
    for folder, (_, names) in INSIDE.items()
    for name in names
    for kind in KINDS
]


@pytest.mark.parametrize(("folder", "name", "kind"), ROWS)
def test_neither_is_it_waited_for_within_a_folder(
    lab: Lab, stories_bundle: Path, stories: Path, state: Path, tmp_path: Path, folder: str, name: str, kind: str
) -> None:
    sources = {"model": stories, "merged": stories, "bundle": stories_bundle, "signed": stories_bundle, "state": state}
    place = tmp_path / folder
    if folder == "adapter":
        assert lab.ask(f"model.export_adapter({str(place)!r}, base=True)")["raised"] is None
    else:
        shutil.copytree(sources[folder], place)
    there = place / name
    if there.is_dir():
        shutil.rmtree(there)
    there.unlink(missing_ok=True)
    if name == "model.safetensors.index.json":
        (place / "model.safetensors").unlink()  # else the index is not read
    made(kind, there)
    answer = lab.ask(INSIDE[folder][0].replace("PATH", repr(str(place))))
    assert answer["ours"], answer


@pytest.mark.parametrize("option", ["--csv", "--plot"])
@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a folder", "a link to itself"])
def test_a_place_for_a_report_is_checked_before_the_work(lab: Lab, tmp_path: Path, option: str, kind: str) -> None:
    path = made(kind, tmp_path / "report.svg")
    refused(lab, f"command('train', bundle, '--state', state, '--run-steps', 1, {option!r}, {str(path)!r})")
    assert lab.ask("str(model.current_run())")["said"] == "None"


@pytest.mark.parametrize("verb", ["generate", "chat"])
def test_standard_input_without_end_is_no_prompt(stories_bundle: Path, state: Path, tmp_path: Path, verb: str) -> None:
    import subprocess
    import sys

    words = [
        verb,
        stories_bundle,
        *(["-"] if verb == "generate" else []),
        "--state",
        shutil.copytree(state, tmp_path / "state"),
    ]
    with open("/dev/zero", "rb") as endless:
        done = subprocess.run(
            [sys.executable, "-m", "bespoke.cli", *map(str, words)],
            stdin=endless,
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode in (2, 13), done.stderr[-2000:]
    assert "Traceback" not in done.stderr
