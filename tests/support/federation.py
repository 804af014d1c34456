# SPDX-License-Identifier: Apache-2.0
"""A bundle of methods that take part in federated learning, rounds for it, and bespoke-core's side of them (federation_lab.cpp)."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bespoke import Federation, Lora, Personalizer, Training
from bespoke.bundle.reader import read_bundle
from bespoke.reference.machine import Machine
from bespoke.rules.batches import TokenBatch
from bespoke.rules.federation import Direction, packed, rounded
from tests.support.models import tiny_model

LENGTH, COLUMNS, SEED = 24, 4, 11
ROUNDS, DIRECTIONS = 200, 2  # of a replay
METHODS: dict[str, Any] = {
    "zgr": {"guidance_columns": COLUMNS},
    "mesp": {"federated_directions": 8, "update": "sgd"},
}


def federated_bundle(place: Path, federation: Federation | None = None, batch_size: int = 2) -> Path:
    """Of a tiny model with whole panels of weights and the edges of others."""
    sizes = {"hidden_size": 72, "intermediate_size": 136, "num_hidden_layers": 2, "head_dim": 18}
    model = tiny_model("llama", place / "model", num_attention_heads=4, **sizes)
    training = Training(sequence_lengths=(LENGTH,), batch_size=batch_size, steps=10)
    personalizer = Personalizer(
        model,
        METHODS,
        "executorch",
        lora=Lora(rank=3),
        training=training,
        licence="apache-2.0",
        data=None,
        text=False,
        federation=federation,
    )
    personalizer.build(place / "federated.bundle")
    return place / "federated.bundle"


def guidance(bundle: Path, seed: int = 0) -> dict[str, np.ndarray]:
    """A round's guidance by name: random columns, since only cloud and method care that they are orthonormal."""
    with read_bundle(bundle) as opened:
        adapter = opened.initial_adapter()
    rng = np.random.default_rng(seed)
    files = {}
    for group in sorted({name.split(".", 1)[0] for name in adapter}):
        pieces = [name for name in ordered(adapter) if name.startswith(f"{group}.")]
        codes, scales = packed({name: rng.standard_normal((COLUMNS, *adapter[name].shape)) for name in pieces})
        files[f"guidance.{group}.codes"], files[f"guidance.{group}.scales"] = codes, scales
    return files


def ordered(adapter: Mapping[str, np.ndarray]) -> list[str]:
    """Names of pieces in the order of a plan: q, k, v, o, gate, up, down, each with A before B."""
    linears = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    return sorted(adapter, key=lambda name: (name.split(".")[0], linears.index(name.split(".")[1]), name))


def written(files: Mapping[str, np.ndarray], folder: Path) -> Path:
    folder.mkdir()
    for name, array in files.items():
        (folder / name).write_bytes(array.tobytes())
    return folder


def batch(seed: int = 0, rows: int = 2) -> TokenBatch:
    rng = np.random.default_rng(seed)
    tokens, targets = (rng.integers(3, 130, (rows, LENGTH)) for _ in range(2))
    mask = (rng.random((rows, LENGTH)) < 0.7).astype(np.float32)
    return TokenBatch(tokens, targets, mask, LENGTH, int(mask.sum()), "user", ())


def coefficients(round_number: int) -> tuple[float, float]:
    rng = np.random.default_rng(round_number)
    return rounded(float(rng.normal(0, 1e-2))), rounded(float(rng.normal(0, 1e-2)))


def reference(bundle: Path, method: str) -> Machine:
    """The reference's machine at the initial adapter."""
    opened = read_bundle(bundle)
    machine = Machine(opened, opened.method(method))
    machine.buffers.fill(opened.initial_adapter())
    return machine


def replay(machine: Machine, rounds: int, directions: int, files: Mapping[str, np.ndarray]) -> str:
    """The sha256 of the adapter after so many rounds, pieces by name."""
    for number in range(rounds):
        c = coefficients(number)
        for direction in range(directions):
            machine.step_along(Direction(SEED, number, direction, *c, received=files))
    adapter = machine.adapter()
    return hashlib.sha256(b"".join(adapter[name].tobytes() for name in sorted(adapter))).hexdigest()


def replays(rounds: int, directions: int, folder: Path) -> list[dict[str, Any]]:
    """The same as actions of the lab."""
    common = {"do": "apply", "seed": SEED, "directions": directions, "guidance": str(folder)}
    return [{**common, "round": number, "coefficients": coefficients(number)} for number in range(rounds)]


def answers(lab: Sequence[str], bundle: Path, method: str, scratch: Path, actions: Sequence[dict[str, Any]]) -> Any:
    request = {
        "bundle": str(bundle),
        "method": method,
        "threads": 1,
        "scratch": str(scratch),
        "actions": list(actions),
    }
    done = subprocess.run([*lab], input=json.dumps(request), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, list), found
    return found
