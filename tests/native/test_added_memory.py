# SPDX-License-Identifier: Apache-2.0
"""What a call adds to an app's memory: it counts from what is there once the machine that answered has gone, and the app's heap is
given back to the system once in such a call, never for a token."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bespoke import Lora, Personalizer, Training
from tests.conftest import REPOSITORY
from tests.support.faults_library import compile_preloaded
from tests.support.models import tiny_model

CONTEXT = 2048
HIDDEN = 64
KV_CACHE_BYTES = 2 * CONTEXT * HIDDEN * 4  # of the one layer


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the calls of an app reported, in their order."""
    folder = tmp_path_factory.mktemp("added")
    sizes = {"hidden_size": HIDDEN, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = tiny_model("llama", folder / "model", num_key_value_heads=2, max_position_embeddings=CONTEXT, **sizes)
    training = Training(sequence_lengths=(16,), steps=2, seed=1)
    personalizer = Personalizer(
        model, "mesp", "executorch", context=CONTEXT, lora=Lora(rank=2), training=training, data=None
    )
    personalizer.build(folder / "bundle")
    preloaded = compile_preloaded(Path(__file__).with_name("counted_trims.c"), folder)
    command = [sys.executable, "-m", "tests.native.added_memory_lab", folder / "bundle", folder / "state"]
    environment = {**os.environ, "LD_PRELOAD": str(preloaded), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, str(CONTEXT - 8)], capture_output=True, text=True, cwd=REPOSITORY, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    reports: dict[str, Any] = json.loads(done.stdout)
    return reports


def added(report: dict[str, Any]) -> int:
    bytes_added: int = report["memory"]["peak_bytes"] - report["memory"]["idle_bytes"]
    return bytes_added


def test_training_adds_the_same_right_after_an_answer(said: dict[str, Any]) -> None:
    trained, after = added(said["trained"]), added(said["trained after an answer"])
    assert abs(after - trained) < KV_CACHE_BYTES, (trained, after)


def test_the_limit_of_a_call_starts_without_the_machine_that_answered(said: dict[str, Any]) -> None:
    before, after = (said[call]["memory"]["idle_bytes"] for call in ("trained", "trained after an answer"))
    assert after - before < KV_CACHE_BYTES, (before, after)


def test_freed_memory_is_given_back_once_in_a_call_and_for_no_token(said: dict[str, Any]) -> None:
    trims = {call: report["trims"] for call, report in said.items()}
    assert trims.pop("next token") == 0
    assert set(trims.values()) == {1}, trims
