# SPDX-License-Identifier: Apache-2.0
"""Bundles for these tests: a tiny model with a tokenizer of its own, built once, and ways to change one behind its hashes' back."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from bespoke import Lora, Personalizer, Training
from bespoke.format.json_strict import dumps_canonical
from bespoke.format.tensors import map_tensors, write_arrays
from tests.support.models import tiny_model

LENGTH = 12
WORDS = "the cat sat on a mat and then it went home to sleep for a while because it was tired of sitting there"


def build(
    folder: Path, family: str, optimizers: Any, *, target: str = "torch", text: bool = False, **training: Any
) -> Path:
    """A bundle of a tiny model of this family; with `text` it has two blocks and a byte-level BPE of 300 tokens."""
    model = tiny_model(
        family,
        folder / "model",
        dtype="bfloat16" if family.startswith("gemma") else "float32",
        **({"vocab_size": 300, "num_hidden_layers": 2} if text else {}),
    )
    if text:
        byte_level_bpe().save(str(model / "tokenizer.json"))
    settings = Training(**{"sequence_lengths": (LENGTH,), "batch_size": 2, "steps": 20, **training})
    Personalizer(model, optimizers, target, lora=Lora(rank=3, alpha=6.0), training=settings, data=None).build(
        folder / "bundle"
    )
    return folder / "bundle"


def byte_level_bpe() -> tokenizers.Tokenizer:
    one = tokenizers.Tokenizer(tokenizers.models.BPE())
    one.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    one.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    one.train_from_iterator([WORDS] * 4, trainer)
    return one


def changed(bundle: Path, into: Path, name: str, change: Callable[[Path], None]) -> Path:
    """A copy of the bundle with one file changed and every hash made to fit."""
    shutil.copytree(bundle, into)
    change(into / name)
    document = json.loads((into / "manifest.json").read_bytes())
    data = (into / name).read_bytes()
    document["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    rewrite_manifest(into, document)
    return into


def rewrite_manifest(bundle: Path, document: dict[str, Any]) -> None:
    data = dumps_canonical(document)
    (bundle / "manifest.json").write_bytes(data)
    (bundle / "manifest.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  manifest.json\n")


def tensors(change: Callable[[dict[str, np.ndarray]], None]) -> Callable[[Path], None]:
    """A change of the arrays of a safetensors file."""

    def apply(path: Path) -> None:
        arrays = {name: np.array(array) for name, array in map_tensors(path).items()}
        change(arrays)
        path.unlink()
        write_arrays(path, arrays)

    return apply


def document(change: Callable[[Any], None]) -> Callable[[Path], None]:
    """A change of a JSON file."""

    def apply(path: Path) -> None:
        content = json.loads(path.read_bytes())
        change(content)
        path.write_bytes(dumps_canonical(content))

    return apply
