# SPDX-License-Identifier: Apache-2.0
"""Adapters and model folders from anywhere: pipes in the place of files, and numbers that nothing computes with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bespoke import PersonalModel
from bespoke.errors import AdapterError
from tests.native.adapter_codes import LARGEST
from tests.support.checks import few_of
from tests.unit.personal_model.tiny import add_numbers, tiny_bundle, tiny_folder

__all__ = ["tiny_bundle", "tiny_folder"]

pytestmark = pytest.mark.xdist_group("tiny")
FILES = ("adapter_config.json", "adapter_model.safetensors")


@pytest.fixture(scope="module")
def trained(tiny_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state, and the adapter that was exported from it. Copy them, do not change them."""
    folder = tmp_path_factory.mktemp("trained")
    with PersonalModel.open(tiny_bundle, folder / "alice") as opened:
        add_numbers(opened)
        assert opened.train(run_steps=4).accepted
        opened.export_adapter(folder / "adapter")
    return folder


@pytest.fixture
def model(tiny_bundle: Path, trained: Path, tmp_path: Path):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    with PersonalModel.open(tiny_bundle, tmp_path / "alice") as opened:
        yield opened


IMPORT = """
import sys
from bespoke import PersonalModel
with PersonalModel.open(sys.argv[1], sys.argv[2]) as model:
    model.import_adapter(sys.argv[3])
"""


@pytest.mark.parametrize("kind", few_of(("pipe", "device", "folder"), ("pipe",)))
@pytest.mark.parametrize("name", FILES)
def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(
    model: PersonalModel, tiny_bundle: Path, tmp_path: Path, name: str, kind: str
) -> None:
    place = tmp_path / "adapter" / name
    place.unlink()
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "device":
        place.symlink_to("/dev/zero")
    else:
        place.mkdir()
    before = model.versions()
    arguments = [sys.executable, "-c", IMPORT, tiny_bundle, tmp_path / "alice", tmp_path / "adapter"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120)  # it waited for ever
    assert f"{place}: got something that is no plain file" in done.stderr
    assert model.versions() == before


@pytest.mark.slow
def test_a_model_folder_with_a_pipe_is_refused_at_once(tiny_folder: Path, tmp_path: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        folder = tmp_path / name
        shutil.copytree(tiny_folder / "model", folder)
        (folder / name).unlink()
        os.mkfifo(folder / name)
        program = [sys.executable, "-m", "bespoke.cli", "build", folder / "out.bundle", "--model", folder, "--dry-run"]
        done = subprocess.run(program, capture_output=True, text=True, timeout=120)
        assert done.returncode == 4, done.stderr
        assert f"{folder / name}: got something that is no plain file" in done.stderr or "no weights" in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("value", [3e38, -3e38, 1.01 * LARGEST, np.nan, np.inf, -np.inf])
def test_a_number_that_nothing_computes_with_is_refused(model: PersonalModel, tmp_path: Path, value: float) -> None:
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    metadata = {"format": "pt", "bespoke_base_sha256": model._bundle.manifest.model.base_sha256}
    tensors = {name: tensor.copy() for name, tensor in load_file(file).items()}
    tensors[max(tensors)].flat[-1] = value
    save_file(tensors, file, metadata)
    before = model.versions()
    with pytest.raises(AdapterError, match="finite numbers of size 10000 at most"):
        model.import_adapter(tmp_path / "adapter")
    assert model.versions() == before
    tensors[max(tensors)].flat[-1] = np.copysign(LARGEST, value)
    save_file(tensors, file, metadata)
    assert model.import_adapter(tmp_path / "adapter") == model.versions()[-1].id
