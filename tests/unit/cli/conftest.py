# SPDX-License-Identifier: Apache-2.0
"""A bundle built by `bespoke build` from a TOML file and flags, and a state trained by `bespoke train`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from bespoke.bundle.signature import generate_key
from tests.support.bundles import shakespeare, write_jsonl
from tests.support.read_once import programs_read_once  # noqa: F401
from tests.unit.cli.commands import Answer, bespoke
from tests.unit.ui.pages import browser, bundle, notes, page, state  # noqa: F401

TOML = """
model = "model"
data = "general.jsonl"
licence = "MIT"
context = 128

[optimizers.mesp]
update = "adamw"

[lora]
rank = 2

[training]
learning_rate = 3e-3
sequence_lengths = [64]
batch_size = 2
steps = 6
"""


@dataclass(frozen=True)
class Built:
    """What `bespoke build` made, and what it said."""

    bundle: Path
    answer: Answer
    public_key: Path
    zips: Path


@dataclass(frozen=True)
class Trained:
    """What `bespoke train` left, and its report."""

    state: Path
    answer: Answer
    plot: Path


@pytest.fixture(scope="session")
def built(stories: Path, data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("build")
    write_jsonl(folder / "general.jsonl", [{**one, "source": "s"} for one in shakespeare(data_folder, 30)[20:]])
    (folder / "model").symlink_to(os.path.abspath(stories))  # named in the TOML file relative to it
    (folder / "bespoke.toml").write_text(TOML)
    private, public = generate_key()
    (folder / "app.pem").write_bytes(private)
    (folder / "app.pub").write_text(public.hex() + "\n")
    out = folder / "stories.bundle"
    flags = ("--sequence-lengths", "32", "--rank", "4", "--option", "mesp.beta1=0.8")
    key = ("--signing-key", folder / "app.pem")
    answer = bespoke(
        "build", out, "--config", folder / "bespoke.toml", *flags, *key, "--zip", folder / "zips", "--format", "json"
    )
    return Built(out, answer, folder / "app.pub", folder / "zips")


@pytest.fixture(scope="session")
def examples(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_jsonl(tmp_path_factory.mktemp("examples") / "notes.jsonl", shakespeare(data_folder, 12))


@pytest.fixture(scope="session")
def trained(built: Built, examples: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("alice")
    asked = ("--examples", examples, "--run-steps", "4", "--format", "json", "--plot", folder / "training.svg")
    return Trained(
        folder / "state", bespoke("train", built.bundle, "--state", folder / "state", *asked), folder / "training.svg"
    )
