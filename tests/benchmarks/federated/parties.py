# SPDX-License-Identifier: Apache-2.0
"""The parties of the simulation, with bespoke-core's machines: devices that measure, and a cloud with exact gradients.

One machine stands for all devices, since all hold the same adapter; a device is the batch that it measures. Bundles are built once
and kept in .cache/federated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from tests.benchmarks.federated.intents import LENGTH, Sentences
from tests.conftest import REPOSITORY
from tests.real_model.decoded import decoded_model
from tests.support.federation import Lab, ordered
from tests.support.models import dequantized_reference

from bespoke import Lora, Personalizer, Training, read_bundle
from bespoke.rules.aggregation import Along

__all__ = ["BATCH", "COLUMNS", "PROJECTIONS", "Judge", "Party", "Place", "bundle_of"]

KEPT = REPOSITORY / ".cache" / "federated"
BATCH, CLOUD_ROWS = 4, 16  # sentences that a device measures in a round, and rows of a batch of exact gradients
COLUMNS, PROJECTIONS = 4, 256
ROWS = 64  # of a batch that is judged
RANK, ALPHA = 8, 16.0
EPSILON = 1e-3


@dataclass(frozen=True)
class Place:
    """What a simulation runs on. lab: the command of federation_lab; model: a folder or a GGUF file; folder: for files that parties
    hand each other; probe: whether devices measure columns of guidance one at a time, or mixed."""

    lab: Sequence[str]
    model: Path
    folder: Path
    kept: Path = KEPT
    probe: bool = False


def bundle_of(place: Place) -> Path:
    """Of `zgr` and `mesp`, LoRA-FA on all blocks."""
    out = place.kept / f"{place.model.name}.{'probe' if place.probe else 'mixed'}.bundle"
    if not out.is_dir():
        place.kept.mkdir(parents=True, exist_ok=True)
        methods: dict[str, Any] = {
            "zgr": {"guidance_columns": COLUMNS, "probe": place.probe, "epsilon": EPSILON, "batch_size": BATCH},
            "mesp": {"federated_directions": PROJECTIONS, "update": "sgd", "batch_size": CLOUD_ROWS},
        }
        Personalizer(
            place.model,
            methods,
            "executorch",
            lora=Lora(rank=RANK, alpha=ALPHA, train="B"),
            training=Training(sequence_lengths=(LENGTH,), steps=10),
            licence="apache-2.0",
            data=None,
            text=False,
        ).build(out)
    return out


class Party:
    """A machine of `method`, and the adapter that it holds. Adapters and gradients are flat, pieces in a plan's order."""

    def __init__(self, place: Place, method: str) -> None:
        self.rows = CLOUD_ROWS if method == "mesp" else BATCH
        self._file = place.folder / f"{method}.floats"
        self._lab = Lab(place.lab, bundle_of(place), method, place.folder / method)
        self._by_name = [(name, tuple(shape)) for name, shape in self._lab.do(do="adapter", file=str(self._file))]
        names = ordered(dict(self._by_name))
        self.shapes = {name: dict(self._by_name)[name] for name in names}

    @property
    def size(self) -> int:
        """d, the trained numbers."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def adapter(self) -> np.ndarray:
        self._lab.do(do="adapter", file=str(self._file))
        return self._read()

    def fill(self, flat: np.ndarray) -> None:
        pieces, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + int(np.prod(shape))
            pieces[name] = flat[start:stop]
            start = stop
        np.concatenate([pieces[name] for name, _ in self._by_name]).astype(np.float32).tofile(self._file)
        self._lab.do(do="fill", file=str(self._file))

    def gradient(self, of: Sentences) -> np.ndarray:
        """The exact gradient of the mean loss of these sentences."""
        self._lab.do(do="measure", seed=0, round=0, along=Along(0, 1.0, 0.0), batches=of.batches(self.rows))
        self._lab.do(do="gradient", file=str(self._file))
        return self._read()

    def measure(self, each: Sequence[tuple[Sentences, Along]], at: dict[str, Any]) -> list[float]:
        """What devices with these sentences send of these directions. `at`: seed, round and the folder of guidance."""
        actions = [{"do": "measure", "along": along, "batches": of.batches(self.rows), **at} for of, along in each]
        return [float(number) for (number,) in self._lab.do_all(actions)]

    def project(self, of: Sentences, at: dict[str, Any], directions: int) -> list[float]:
        """Projections of the exact gradient of the mean loss of these sentences."""
        self._lab.do(do="measure", along=Along(0, 1.0, 0.0), batches=of.batches(self.rows), **at)
        actions = [{"do": "project", "along": Along(number, 1.0, 0.0), **at} for number in range(directions)]
        return [float(number) for (number,) in self._lab.do_all(actions)]

    def apply(self, at: dict[str, Any], steps: Sequence[Along]) -> str:
        """Takes a round's step; the sha256 of the adapter."""
        return str(self._lab.do(do="apply", along=steps, **at))

    def _read(self) -> np.ndarray:
        values, start, pieces = np.fromfile(self._file, np.float32), 0, {}
        for name, shape in self._by_name:
            stop = start + int(np.prod(shape))
            pieces[name] = values[start:stop]
            start = stop
        assert start == len(values)
        return np.concatenate([pieces[name] for name in self.shapes])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lab.__exit__()


class Judge:
    """Loss and accuracy of an adapter on sentences, by transformers on the weights that the bundle decodes to."""

    def __init__(self, place: Place, shapes: dict[str, tuple[int, ...]]) -> None:
        is_folder = place.model.is_dir()
        self._model = dequantized_reference(place.model) if is_folder else decoded_model(place.model, bundle_of(place))
        self._shapes = shapes
        with read_bundle(bundle_of(place)) as opened:
            self._a = {name: np.array(piece) for name, piece in opened.initial_adapter().items()}
        self._base = {name: self._linear(name).weight.clone() for name in shapes}

    def _linear(self, piece: str) -> Any:
        group, linear, _ = piece.split(".")
        block = self._model.model.layers[int(group.removeprefix("block_"))]
        return getattr(block.mlp if linear in ("gate_proj", "up_proj", "down_proj") else block.self_attn, linear)

    @torch.no_grad()
    def __call__(self, adapter: np.ndarray, of: Sentences) -> tuple[float, float]:
        """The mean loss of the label words, and the share of sentences whose word is the likeliest of the seven."""
        start = 0
        for name, shape in self._shapes.items():
            stop = start + int(np.prod(shape))
            b = torch.from_numpy(adapter[start:stop].reshape(shape))
            a = torch.from_numpy(self._a[name.replace("lora_B", "lora_A")])
            self._linear(name).weight.copy_(self._base[name] + ALPHA / RANK * (b @ a))
            start = stop
        logits = torch.cat([self._logits(of.at(slice(first, first + ROWS))) for first in range(0, len(of), ROWS)])
        words = torch.from_numpy(of.words)
        kinds = torch.from_numpy(of.kinds)
        loss = torch.nn.functional.cross_entropy(logits, words[kinds])
        return float(loss), float((logits[:, words].argmax(1) == kinds).float().mean())

    def _logits(self, of: Sentences) -> torch.Tensor:
        """Of the word after each sentence."""
        return self._model(torch.from_numpy(of.tokens)).logits[torch.arange(len(of)), torch.from_numpy(of.last)]
