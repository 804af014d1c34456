# SPDX-License-Identifier: Apache-2.0
"""Three invented people's messages and the questions about them, and one bundle of three methods to train on them.

stories260K has no chat template, so a message is a `text`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PERSONAS = ("student", "customer", "healthcare")
LENGTH = 64  # tokens of a row
METHODS: dict[str, dict[str, Any]] = {
    "mesp": {"update": "adamw"},
    "mebp": {"update": "adamw"},
    "mezo": {"learning_rate": 1e-3},  # at 3e-3 the loss grows
}


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def messages(data_folder: Path, persona: str) -> list[str]:
    """What a persona wrote, in order."""
    return [row["text"] for row in read_jsonl(data_folder / "personas" / f"{persona}.messages.jsonl")]


def questions(data_folder: Path, persona: str) -> list[dict[str, Any]]:
    """{"question", "answers", "source"} about a persona."""
    return read_jsonl(data_folder / "personas" / f"{persona}.qa.jsonl")


def shakespeare_passages(data_folder: Path, count: int, characters: int) -> list[str]:
    """Passages at equal distances over the whole of tinyshakespeare; none overlaps another."""
    text = (data_folder / "text" / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    distance = len(text) // count
    return [text[start : start + characters] for start in range(0, distance * count, distance)]


def build_three_methods(model: Path, out: Path, steps: int) -> Path:
    """mesp, mebp and mezo for stories260K: rank 8, rows of 64 tokens, four a step."""
    from bespoke import Lora, Personalizer, Training

    training = Training(
        learning_rate=3e-3, steps=steps, sequence_lengths=(LENGTH,), batch_size=4, schedule="cosine", warmup_steps=10
    )
    return Personalizer(model, METHODS, "torch", lora=Lora(rank=8), training=training, rehearsal=False).build(out)
