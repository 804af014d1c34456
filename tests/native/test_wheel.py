# SPDX-License-Identifier: Apache-2.0
"""The wheel for machines without a compiler: installed alone, without torch and executorch, it trains on the core."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from bespoke import Lora, Personalizer, Training
from tests.conftest import REPOSITORY
from tests.native.third_party import SOURCES
from tests.support.bundles import shakespeare, write_jsonl

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    made = subprocess.run(
        [sys.executable, REPOSITORY / "tools" / "make_wheel.py", folder], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, (made.stdout + made.stderr)[-4000:]
    (path,) = folder.glob("*.whl")
    return path


def test_its_name_says_where_it_runs_and_its_files_what_they_owe(wheel: Path) -> None:
    assert "-py3-none-manylinux_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    for package in ("executorch", *SOURCES):
        assert f"bespoke/core/licences/{package}.txt" in names
    assert {"bespoke/data/everyday/en.txt", "bespoke/data/openings/en.txt"} <= names
    assert not [name for name in names if "sqlite" in Path(name).name and ".so" in name]
    assert wheel.stat().st_size < 20e6


def test_the_sources_hold_all_that_is_compiled(tmp_path: Path) -> None:
    """The sdist, as pip makes it: with the pinned sources of others, each with its licence."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "scikit-build-core>=0.11,<2"], check=True)
    make = (
        "import sys; sys.path.insert(0, 'tools'); import bespoke_build; print(bespoke_build.build_sdist(sys.argv[1]))"
    )
    subprocess.run([python, "-c", make, tmp_path], cwd=REPOSITORY, capture_output=True, check=True)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames()}
    for folder, source in SOURCES.items():
        assert {f"bindings/native/third_party/{folder}/{name}" for name in source["files"]} <= names
    assert {"bindings/native/third_party/sources.json", "bindings/native/third_party/CMakeLists.txt"} <= names


def test_it_trains_on_the_core_where_nothing_else_is_installed(
    wheel: Path, stories: Path, data_folder: Path, tmp_path: Path
) -> None:
    bundle = tmp_path / "stories.bundle"
    training = Training(learning_rate=3e-3, sequence_lengths=(16,), batch_size=2, steps=4, seed=1)
    Personalizer(stories, "mesp", "executorch", lora=Lora(rank=4), training=training).build(bundle)
    examples = write_jsonl(tmp_path / "examples.jsonl", shakespeare(data_folder, 8))
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True)
    program = tmp_path / "venv" / "bin" / "bespoke"
    missing = "import importlib.util as u; print([name for name in ('torch', 'executorch') if u.find_spec(name)])"
    assert subprocess.run([python, "-c", missing], capture_output=True, text=True, check=True).stdout == "[]\n"
    done = subprocess.run(
        [
            program,
            "train",
            bundle,
            "--state",
            tmp_path / "state",
            "--examples",
            examples,
            "--run-steps",
            "4",
            "--format",
            "json",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["runtime"], report["steps"]) == ("core", 4)
