# SPDX-License-Identifier: Apache-2.0
"""Small bundles for Core ML, and the core with Core ML as its engine: training and answers."""

from __future__ import annotations

import ctypes as c
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from bespoke import Lora, Personalizer, Training, plugins
from bespoke.bundle.reader import read_bundle
from bespoke.core import library
from bespoke.core.answers import Generation
from bespoke.core.handle import Handle, Place, Request
from bespoke.core.torch_engine import TorchEngine
from bespoke.testing import TargetEngine
from tests.support.bundles import CORE_JOURNALED, CORE_METHODS
from tests.support.models import tiny_model
from tests.support.reading import select

STEPS, NUMBERS = 3, 131

# Relative to a tensor's norm. AdamW divides a gradient by its own size, so the rounding of one near 0 becomes a step.
TENSORS = 1e-4
RECORDED = "SELECT recorded FROM journal ORDER BY step"
SIZES = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 4}

FAMILIES: dict[str, dict[str, Any]] = {
    "llama": SIZES,
    "qwen2": {**SIZES, "num_key_value_heads": 2},
    "gemma3_text": {**SIZES, "head_dim": 8},
}


def build(family: str, folder: Path, **options: Any) -> None:
    model = tiny_model(family, folder / "model", **FAMILIES[family])
    training = Training(
        sequence_lengths=(16,), batch_size=2, steps=STEPS + 1, seed=1, commit_seconds=1e-6, write_mb_per_second=1e9
    )
    lora = Lora(rank=2, alpha=8.0)
    methods = options.pop("methods", CORE_METHODS)
    Personalizer(model, methods, {"coreml": options}, context=40, lora=lora, training=training, data=None).build(
        folder / "bundle"
    )


def engine_of(bundle: Path, name: str) -> TorchEngine:
    if name == "torch":
        return TorchEngine()
    target = plugins.get("target", "coreml")
    with read_bundle(bundle) as opened:
        (record,) = [record for record in opened.manifest.targets if record.name == "coreml"]
    return TargetEngine(target, target.Options(**record.options))  # type: ignore[arg-type]


@contextmanager
def opened_core(bundle: Path, state: Path, engine: TorchEngine | str) -> Iterator[Handle]:
    """`engine`: one that no core had yet, or the name of one."""
    with read_bundle(bundle) as opened:
        place = Place(bundle, state, opened.manifest_sha256)
    engine = engine_of(bundle, engine) if isinstance(engine, str) else engine
    core = Handle(library.load(), place, engine=c.cast(c.pointer(engine.table), c.c_void_p))
    try:
        yield core
    finally:
        core.close()


def numbers(count: int, length: int, seed: int) -> list[list[int]]:
    return np.random.default_rng(seed).integers(3, NUMBERS, (count, length)).tolist()  # type: ignore[no-any-return]


def example(tokens: list[int]) -> str:
    return json.dumps({"tokens": tokens, "mask": [1] * len(tokens)})


def trained(bundle: Path, state: Path, engine: TorchEngine | str, method: str) -> dict[str, Any]:
    """Losses of a run's steps, what it recorded, and the tensors of its last slot."""
    with opened_core(bundle, state, engine) as core:
        for number, tokens in enumerate(numbers(12, 14, 5)):
            core.add_example(example(tokens), str(number), None)
        core.train(Request(method=method), 1e-9, None, None)  # begins a run of STEPS + 1: after STEPS it has a slot
        report = core.train(Request(most_steps=STEPS), None, None, None)
        found = {"losses": np.array(report["losses"])}
    if method in CORE_JOURNALED:
        found["recorded"] = np.array([np.frombuffer(bytes.fromhex(row[0]), "<f4") for row in select(state, RECORDED)])
    else:
        slot = max(state.glob("slot_*.safetensors"), key=lambda path: path.stat().st_mtime_ns)
        found |= safetensors.numpy.load_file(slot)
    return found


def answered(bundle: Path, state: Path, engine: TorchEngine | str) -> tuple[float, list[int | None]]:
    """The loss of four examples, and the first tokens of an answer."""
    with opened_core(bundle, state, engine) as core:
        loss = core.evaluate("train", [example(tokens) for tokens in numbers(4, 15, 9)])["loss"]
        conversation = core.open_conversation(Generation(max_tokens=6))
        conversation.feed(json.dumps(numbers(1, 11, 3)[0]))
        pieces = [conversation.next() for _ in range(6)]
        conversation.close()
    return loss, [piece.token for piece in pieces]
