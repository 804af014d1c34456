# SPDX-License-Identifier: Apache-2.0
"""A bundle of methods that take part in federated learning, rounds for it, and bespoke-core's side of them (federation_lab.cpp)."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from bespoke import Federation, Lora, Personalizer, Training
from bespoke.bundle.reader import read_bundle
from bespoke.reference.machine import Machine
from bespoke.rules.batches import TokenBatch
from bespoke.rules.federation import Direction, packed, rounded
from bespoke.rules.noise import noise
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


def flat_noise(shapes: Mapping[str, tuple[int, ...]], number: int, seed: int, round_number: int) -> np.ndarray:
    """z of a direction for pieces of B, all seven of each block in a plan's order; A is numbered before B, trained or not."""
    parts = []
    for place, (name, shape) in enumerate(shapes.items()):
        counter = {"block": int(name[6:8]), "tensor": 2 * (place % 7) + 1, "query": number}
        z = noise(shape, seed=seed, step=round_number, **counter, distribution="rademacher")
        parts.append(z.reshape(-1))
    return np.concatenate(parts)


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


def adapter_hash(adapter: Mapping[str, np.ndarray]) -> str:
    """The sha256 by which devices and servers compare adapters: of all pieces, by name."""
    return hashlib.sha256(
        b"".join(np.ascontiguousarray(adapter[name]).tobytes() for name in sorted(adapter))
    ).hexdigest()


def replay(machine: Machine, rounds: int, directions: int, files: Mapping[str, np.ndarray]) -> str:
    """The sha256 of the adapter after so many rounds, pieces by name."""
    for number in range(rounds):
        c = coefficients(number)
        for direction in range(directions):
            machine.step_along(Direction(SEED, number, direction, *c, received=files))
    return adapter_hash(machine.adapter())


def replays(rounds: int, directions: int, folder: Path) -> list[dict[str, Any]]:
    """The same as actions of the lab."""
    common = {"do": "apply", "seed": SEED, "guidance": str(folder)}
    return [
        {**common, "round": number, "along": [(direction, *coefficients(number)) for direction in range(directions)]}
        for number in range(rounds)
    ]


def answers(lab: Sequence[str], bundle: Path, method: str, scratch: Path, actions: Sequence[dict[str, Any]]) -> Any:
    with Lab(lab, bundle, method, scratch) as machine:
        return machine.do_all(actions)


class Lab:
    """bespoke-core's machine of a method, at the bundle's initial adapter (federation_lab.cpp); `do` is one action of it."""

    def __init__(self, command: Sequence[str], bundle: Path, method: str, scratch: Path) -> None:
        self._process = subprocess.Popen([*command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.start = self.do(bundle=str(bundle), method=method, threads=1, scratch=str(scratch))
        """The sha256 of the initial adapter."""

    def do(self, **action: Any) -> Any:
        (answer,) = self.do_all([action])
        return answer

    def do_all(self, actions: Sequence[dict[str, Any]]) -> list[Any]:
        """Their answers. All are sent before the first is read, so the lab does not wait in between; answers must fit a pipe."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("".join(json.dumps(action) + "\n" for action in actions))
        self._process.stdin.flush()
        answers = []
        for _ in actions:
            line = self._process.stdout.readline()
            assert line, f"the lab ended with {self._process.wait()}"
            answers.append(json.loads(line))
            assert not isinstance(answers[-1], dict), answers[-1]  # an error of the core
        return answers

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def as_json(batch: TokenBatch) -> dict[str, Any]:
    """A batch as the lab reads it."""
    rows, length = batch.tokens.shape
    cells = {name: getattr(batch, name).reshape(-1).tolist() for name in ("tokens", "targets", "mask")}
    return {"rows": rows, "length": length, **cells}
