# SPDX-License-Identifier: Apache-2.0
"""A token and a step allocate next to nothing, and no more for a model of more blocks: buffers are there before the first one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bespoke import Lora, Personalizer, Training
from tests.kotlin.prepare import compile_client
from tests.support.models import tiny_model

MOST, MOST_BYTES = 12, 2_000  # of a token; its logits alone are 4 bytes for each of VOCABULARY
VOCABULARY, LENGTH = 2_000, 12


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_client(Path(__file__).with_name("allocations.c"), tmp_path_factory.mktemp("client"))


@pytest.fixture(scope="module", params=[2, 5], ids=["2 blocks", "5 blocks"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("bundle")
    model = tiny_model("llama", place / "model", num_hidden_layers=request.param, vocab_size=VOCABULARY)
    training = Training(sequence_lengths=(LENGTH,), batch_size=1)
    Personalizer(model, "mesp", "executorch", lora=Lora(rank=2), training=training, data=None).build(place / "bundle")
    return place / "bundle"


def counted(program: Path, *arguments: object) -> np.ndarray:
    """Allocations and bytes between one token or step and the next."""
    said = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=True).stdout
    return np.array([line.split() for line in said.splitlines()], int)


def test_a_token_allocates_next_to_nothing(program: Path, bundle: Path, tmp_path: Path) -> None:
    found = counted(program, bundle, tmp_path / "state", "answer", "[1, 20, 30, 40]", 20)
    assert np.median(found[:, 0]) <= MOST, found
    assert np.median(found[:, 1]) <= MOST_BYTES, found


def test_a_step_allocates_what_the_run_keeps_of_it(program: Path, bundle: Path, tmp_path: Path) -> None:
    example = json.dumps({"tokens": list(range(3, 3 + LENGTH)), "mask": [1] * LENGTH})
    found = counted(program, bundle, tmp_path / "state", "train", example, 12)
    assert np.median(found[:, 0]) <= 100, found
    assert np.median(found[:, 1]) <= 20_000, found
