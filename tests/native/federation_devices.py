# SPDX-License-Identifier: Apache-2.0
"""Devices of a federation for tests: a bundle, a server for it, an open model, and what the reference measures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import Federation, PersonalModel
from bespoke.bundle.signature import public_key_of
from bespoke.format.json_strict import dumps_canonical
from bespoke.rules.batches import Row, evaluation_batches
from bespoke.rules.federation import Direction
from tests.support import federation as f
from tests.support.bundles import made_once
from tests.support.federation_key import PRIVATE
from tests.support.federation_server import Server
from tests.unit.bundle.example import replace_manifest


@pytest.fixture(scope="session")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle whose numbers are not noised, so that they can be compared."""
    key = public_key_of(PRIVATE).hex()
    federation = Federation(task="words", server_key=key, clip=1e6, noise=0.0, budget=None)
    folder = made_once(tmp_path_factory, "federated", lambda place: f.federated_bundle(place, federation))
    return folder / "federated.bundle"


@pytest.fixture
def server(exact: Path) -> Server:
    return Server(exact, PRIVATE)


@pytest.fixture
def model(exact: Path, tmp_path: Path) -> Iterator[PersonalModel]:
    with PersonalModel.open(exact, tmp_path / "state") as opened:
        yield opened


def with_federation(bundle: Path, place: Path, **changes: float) -> Path:
    """The same bundle, whose devices send something else."""
    shutil.copytree(bundle, place)
    document = json.loads((place / "manifest.json").read_bytes())
    document["federation"].update(changes)
    replace_manifest(place, dumps_canonical(document))
    return place


def example(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    tokens = rng.integers(3, 130, 12).tolist()
    return {"tokens": tokens, "mask": [0, *[1] * 11]}


def joined(model: PersonalModel, examples: int = 2) -> PersonalModel:
    for number in range(examples):
        model.examples.add(example(number), id=str(number), use="train")
    model.federation.join()
    return model


def measured_by_reference(
    server: Server, examples: int, number: int, c: float = 1.0, c_guided: float = 0.0, **more: Any
) -> float:
    rows = [
        Row(np.array(one["tokens"], np.int32), np.array(one["mask"], np.uint8)) for one in map(example, range(examples))
    ]
    batches = list(evaluation_batches(rows, 2, (f.LENGTH,)))
    at = Direction(server.record.seed, len(server.rounds) + 1, number, c, c_guided, **more)
    (found,) = server.machine.measure(batches, at)
    return float(found)
