# SPDX-License-Identifier: Apache-2.0
"""A real bundle of a tiny random Llama, built once a test session, examples for it, and changed copies of it.

It takes token ids only. `mesp` steps with AdamW, `mebp` over two micro-batches a step, `mezo` is replayable.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.manifest import Manifest
from bespoke.bundle.reader import read_bundle
from bespoke.bundle.writer import BundleWriter
from bespoke.data.rows import TokenRow, TokenRows
from bespoke.format.tensors import write_arrays
from bespoke.reference.exported import exported_adapter
from bespoke.rules.batches import Row
from tests.support.bundles import made_once
from tests.support.models import tiny_model

LENGTHS = (16,)
CONTEXT = 100  # a chunk of 64, and too little room for another one
VOCABULARY = 131
STEPS = 12
RANK = 2
ALPHA = 8.0
METHODS = ("mesp", "mebp", "mezo")
POISON = 130  # in none of these examples
STOP = 129  # nor this one


def other(index: int) -> dict[str, Any]:
    """An example of tokens that `numbers` never has: who learns the one takes likelihood from the other."""
    return {"tokens": [100 + (index + place) % 6 for place in range(9)], "mask": [0] + [1] * 8}


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model` (Hugging Face) and `bundle`; read them, do not change them."""
    return made_once(tmp_path_factory, "tiny", build)


def build(folder: Path) -> None:
    # Few different shapes, and widths that leave the planner nothing to choose: it would trace every combination.
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4}
    model = tiny_model("llama", folder / "model", num_hidden_layers=2, **sizes)
    optimizers = {
        "mesp": {"learning_rate": 1e-2},
        "mebp": {"learning_rate": 1e-2, "accumulation": 2},
        "mezo": {"learning_rate": 1e-3, "epsilon": 1e-2},
    }
    # Commits as often as they can be asked for: after every step.
    training = Training(
        sequence_lengths=LENGTHS, batch_size=2, steps=STEPS, seed=1, commit_seconds=1e-6, write_mb_per_second=1e9
    )
    lora = Lora(rank=RANK, alpha=ALPHA)
    Personalizer(model, optimizers, "torch", context=CONTEXT, lora=lora, training=training, data=None).build(
        folder / "bundle"
    )


@pytest.fixture(scope="session")
def tiny_bundle(tiny_folder: Path) -> Path:
    return tiny_folder / "bundle"


def numbers(index: int) -> dict[str, Any]:
    """An example that counts in a circle of six, from anywhere: a few steps on some of them help with all of them."""
    tokens = [40 + (index + place) % 6 for place in range(7 + index % 9)]
    return {"tokens": tokens, "mask": [0] + [1] * (len(tokens) - 1)}


def row(tokens: Sequence[int], mask: Sequence[int]) -> Row:
    return Row(np.array(tokens, np.int32), np.array(mask, np.uint8))


def number_rows(count: int = 10, first: int = 0) -> list[Row]:
    """The same as rows, for the reference."""
    return [row(**numbers(index)) for index in range(first, first + count)]


def split_of(id: str, count: int, validation: int) -> str:
    """Split of the `count`-th example, where `validation` of those before it are held out (docs/reference/state_format.md)."""
    chosen = int(hashlib.sha256(id.encode()).hexdigest(), 16) % 10 == 0
    return "validation" if count >= 5 and (chosen or validation * 10 < count) else "train"


def add_numbers(model: PersonalModel, count: int = 12, first: int = 0) -> None:
    for index in range(first, first + count):
        model.examples.add(numbers(index), id=f"number-{index}")


def changed(
    source: Path,
    target: Path,
    change: Callable[[Manifest], Manifest] = lambda manifest: manifest,
    *,
    arrays: dict[str, dict[str, np.ndarray]] | None = None,
    files: dict[str, bytes] | None = None,
) -> Path:
    """A valid bundle like `source` with another manifest, other arrays in a tensor file, other or more files."""
    replaced = files or {}
    with read_bundle(source) as bundle, BundleWriter(target) as writer:
        manifest = change(bundle.manifest)
        for name in bundle.manifest.files:
            if name in (arrays or {}):
                write_arrays(writer.path_for(name), {**bundle.mapped(name), **(arrays or {})[name]})
            elif name not in replaced:
                writer.add_bytes(name, bundle.read(name))
        for name, data in replaced.items():
            writer.add_bytes(name, data)
        return writer.finish(manifest)


def other_base(manifest: Manifest) -> Manifest:
    return manifest.model_copy(
        update={"model": manifest.model.model_copy(update={"base_sha256": hashlib.sha256(b"another").hexdigest()})}
    )


def with_general(source: Path, target: Path, train: Sequence[dict[str, Any]], valid: Sequence[dict[str, Any]]) -> Path:
    """The bundle with general data of its own; without rows to train on, with data that only judges."""

    def rows(examples: Sequence[dict[str, Any]]) -> bytes:
        made = (TokenRow(np.array(one["tokens"], np.int32), np.array(one["mask"], np.uint8)) for one in examples)
        return TokenRows.from_rows(made).to_bytes()

    files = {f"data/{name}.safetensors": rows(given) for name, given in (("train", train), ("valid", valid)) if given}
    names = {name.removeprefix("data/").removesuffix(".safetensors"): name for name in files}
    return changed(
        source,
        target,
        lambda manifest: manifest.model_copy(update={"data": manifest.data.model_copy(update=names)}),
        files=files,
    )


def with_behaviour(source: Path, target: Path, examples: Sequence[dict[str, Any]]) -> Path:
    """The bundle with answers of the base model to other prompts; tokens STOP end answers."""
    made = (TokenRow(np.array(one["tokens"], np.int32), np.array(one["mask"], np.uint8)) for one in examples)
    name = "data/behaviour.safetensors"

    def change(manifest: Manifest) -> Manifest:
        data = manifest.data.model_copy(update={"behaviour": name})
        return manifest.model_copy(
            update={"data": data, "text": manifest.text.model_copy(update={"stop_ids": (STOP,)})}
        )

    return changed(source, target, change, files={name: TokenRows.from_rows(made).to_bytes()})


def poisoned(source: Path, target: Path) -> Path:
    """The bundle, but that token POISON makes every loss NaN that it is part of."""
    name = "weights/embedding.safetensors"
    with read_bundle(source) as bundle:
        scales = bundle.mapped(name)["table.scales"].copy()
    scales[POISON] = np.nan
    return changed(source, target, arrays={name: {"table.scales": scales}})


def answering(model: PersonalModel) -> dict[str, np.ndarray]:
    """The adapter that answers, as it is exported: full name of each piece -> float32."""
    with tempfile.TemporaryDirectory() as folder:
        return exported_adapter(model.export_adapter(Path(folder) / "adapter", base=True), model._bundle.manifest)


def state_bits(folder: Path) -> dict[str, bytes]:
    """Every tensor file of a state folder: its kind (slot or accepted) and bytes, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.safetensors"))}
