# SPDX-License-Identifier: Apache-2.0
"""A bundle, a state with examples, and files that are wrong: what the tables of bad inputs are tried on."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from bespoke import PersonalModel
from tests.support.bundles import stories_bundle, write_jsonl
from tests.support.read_once import programs_read_once  # noqa: F401

__all__ = ["stories_bundle"]

FILES: dict[str, bytes] = {
    "file": b"x",
    "null.jsonl": b"null\n",
    "half.jsonl": b'{"text": \n',
    "number.jsonl": b'{"text": 3}\n',
    "keys.jsonl": b'{"word": "a"}\n',
    "latin.jsonl": b'{"text": "\xe9"}\n',
    "deep.jsonl": b"[" * 100_000 + b"\n",
    "empty.jsonl": b"",
    "columns.csv": b"a,b\n1,2\n",
    "short.pub": b"123",
    "half.toml": b"model = [",
    "name.toml": b'modell = "m"\n',
    "list.toml": b'model = "m"\noptimizers = [true, "mesp"]\n',
    "table.toml": b'model = "m"\nlora = [8, "all"]\n',
    "true.toml": b'model = "m"\n[training]\nsteps = true\n',
    "word.toml": b'model = "m"\n[training]\nlearning_rate = "fast"\n',
}


@dataclass(frozen=True)
class Place:
    """Names that a row may use: {bundle}, {state} of 12 examples and no adapter, {tmp} with the files above."""

    bundle: Path
    state: Path
    tmp: Path

    def fill(self, text: str) -> str:
        for name in ("bundle", "state", "tmp"):
            text = text.replace(f"{{{name}}}", str(getattr(self, name)))
        return text

    def holds(self, expected: str, said: str) -> bool:
        """Whether that was said: word for word, but for "..." where a row leaves something open."""
        pattern = ".*".join(re.escape(part) for part in self.fill(expected).split("..."))
        return re.fullmatch(pattern, said, re.DOTALL) is not None


@pytest.fixture(scope="session")
def state(stories_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad_inputs") / "state"
    with PersonalModel.open(stories_bundle, folder) as model:
        for number in range(12):
            model.examples.add({"text": f"Note {number}: rain on the lake, and the boat is gone."})
    return folder


@pytest.fixture
def place(stories_bundle: Path, state: Path, tmp_path: Path) -> Place:
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "folder").mkdir()
    write_jsonl(tmp_path / "notes.jsonl", [{"text": json.dumps(number)} for number in range(3)])
    return Place(stories_bundle, shutil.copytree(state, tmp_path / "state"), tmp_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "bad_inputs" in item.nodeid:  # one process reads the bundle and keeps the state
            item.add_marker(pytest.mark.xdist_group("bad_inputs"))
