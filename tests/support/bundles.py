# SPDX-License-Identifier: Apache-2.0
"""A small real bundle, built once a test session, and examples for it. Import the fixtures where they are used."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def shakespeare(data_folder: Path, count: int, characters: int = 100) -> list[dict[str, str]]:
    """Examples of `text`, one after the other from the beginning of tinyshakespeare; each goes on."""
    text = (data_folder / "text" / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    return [
        {"text": text[start : start + characters], "end": "none"} for start in range(0, count * characters, characters)
    ]


def write_jsonl(path: Path, examples: list[dict[str, str]]) -> Path:
    path.write_text("".join(json.dumps(example) + "\n" for example in examples), encoding="utf-8")
    return path


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder of this test session that all of its processes see."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder of this name, as `make` filled it: of several test processes one does, and the others wait. Do not change it."""
    folder = shared_folder(factory) / name
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".made").exists():
            make(folder)
            (folder / ".made").touch()
    return folder


@pytest.fixture(scope="session")
def stories_bundle(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K, MeSP with AdamW, sequence length 32, batch 2, rank 4; read it, do not change it."""
    from bespoke import Lora, Personalizer, Training

    def make(folder: Path) -> None:
        training = Training(learning_rate=3e-3, sequence_lengths=(32,), batch_size=2, steps=20, seed=1)
        Personalizer(stories, "mesp", "torch", context=64, lora=Lora(rank=4), training=training).build(
            folder / "bundle"
        )

    return made_once(tmp_path_factory, "stories", make) / "bundle"


CORE_METHODS = {
    "mesp": {"learning_rate": 1e-2},  # AdamW: optimizer state in the slots
    "mebp": {"learning_rate": 1e-2, "accumulation": 2},
    "mezo": {"learning_rate": 1e-3, "epsilon": 1e-2},  # a journal
    # A journal, and an adapter that must be finished.
    "prge": {"learning_rate": 1e-3, "epsilon": 1e-2, "queries": 2, "dual_forwarding": True},
}
CORE_JOURNALED = {"mezo", "prge"}
CORE_STEPS = 13  # steps of a run


@pytest.fixture(scope="session")
def tiny_core_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama for the target of the core; commits after every step. Read it, do not change it."""
    from bespoke import Lora, Personalizer, Training
    from tests.support.models import tiny_model

    def make(folder: Path) -> None:
        sizes = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4}
        model = tiny_model("llama", folder / "model", **sizes)
        training = Training(
            sequence_lengths=(16,), batch_size=2, steps=CORE_STEPS, seed=1, commit_seconds=1e-6, write_mb_per_second=1e9
        )
        lora = Lora(rank=2, alpha=8.0)
        personalizer = Personalizer(
            model, CORE_METHODS, "executorch", context=40, lora=lora, training=training, data=None
        )
        personalizer.build(folder / "bundle")

    return made_once(tmp_path_factory, "tiny_core", make) / "bundle"


def drop_later_fields(document: dict[str, Any]) -> None:
    """A manifest's document as it was before format 1.3, of a bundle that has no smaller budgets and trains both factors."""
    del document["smaller_generation"]
    for method in document["methods"]:
        del method["smaller_plans"]
    drop_fields_of_1_4(document)


def drop_fields_of_1_8(document: dict[str, Any]) -> None:
    """A manifest's document as it was before format 1.8."""
    del document["federation"]


def drop_fields_of_1_7(document: dict[str, Any]) -> None:
    """A manifest's document as it was before format 1.7."""
    drop_fields_of_1_8(document)
    document["files"].pop(document["data"].pop("behaviour"), None)


def drop_fields_of_1_5(document: dict[str, Any]) -> None:
    """A manifest's document as it was before format 1.5."""
    drop_fields_of_1_7(document)
    for method in document["methods"]:
        del method["training"]["useful_gain"], method["training"]["write_mb_per_run"]


def drop_fields_of_1_4(document: dict[str, Any]) -> None:
    """A manifest's document as it was before format 1.4."""
    drop_fields_of_1_5(document)
    del document["lora"]["train"]
    for target in document["targets"]:
        del target["features"]
        for artifact in target["artifacts"]:
            del artifact["numbers"], artifact["delegates"]
