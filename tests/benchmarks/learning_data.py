# SPDX-License-Identifier: Apache-2.0
"""What is learned at equal compute: two sets of labels and two of texts, each with rows to train, to choose a rate by and to test.

Rows are drawn once, by a fixed seed, so every method and every seed of a run sees the same ones.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.trained import trained_model, wikitext
from tests.support.personas import shakespeare_passages

from bespoke.tasks import Task, TaskRow, read_task

Example = dict[str, Any]
CHARACTERS = 280  # length of a passage of text
WORDS = {
    "AddToPlaylist": "playlist",
    "BookRestaurant": "restaurant",
    "GetWeather": "weather",
    "PlayMusic": "music",
    "RateBook": "book",
    "SearchCreativeWork": "work",
    "SearchScreeningEvent": "film",
}


@dataclass(frozen=True)
class Part:
    """`task`: None where it is text."""

    examples: list[Example]
    task: Task | None


@dataclass(frozen=True)
class Data:
    train: Part
    valid: Part
    test: Part


def load(name: str, data_folder: Path, train: int, valid: int, test: int, *, chat: bool = False) -> Data:
    """`train`, `valid`, `test`: rows of each; those of `valid` are of the training file, where there is one, and not in `train`.
    `chat`: whether the model is asked in turns; it learns labels in the form that it is asked in."""
    if name in ("snips", "banking77"):
        of_training, of_test = (snips if name == "snips" else banking77)(data_folder)
        rows, tests = _drawn(of_training.rows, train + valid), _drawn(of_test.rows, test)
        cut = [rows[:train], rows[train:], tests]
        tasks = [Task("labels", tuple(one), of_training.source) for one in cut]
        return Data(*(Part(task.examples(chat=chat), task) for task in tasks))
    if name == "shakespeare":
        passages = _drawn(shakespeare_passages(data_folder, train + valid + test, CHARACTERS), train + valid + test)
        cut_texts = [passages[:train], passages[train : train + valid], passages[train + valid :]]
    elif name == "wikitext":
        counts = {"train": train, "valid": valid, "test": test}
        cut_texts = [_drawn(paragraphs(data_folder, split), count) for split, count in counts.items()]
    else:
        raise SystemExit(f"no data set {name!r}: there are snips, banking77, shakespeare, wikitext")
    return Data(*(Part([{"text": text} for text in texts], None) for texts in cut_texts))


def snips(data_folder: Path) -> tuple[Task, Task]:
    """Which of seven functions a sentence asks for. Label words are plain words, as in the papers' templates: the functions' names
    are nine tokens long in a small vocabulary."""
    folder = data_folder / "function_calling" / "snips"
    words = tuple(WORDS.values())
    tasks = []
    for split in ("train", "valid"):
        calls = read_task("calls", folder / f"fc_{split}.jsonl")
        rows = tuple(
            TaskRow(
                row.number, row.prompt.replace("\nCall:", "\nLabel:"), (WORDS[json.loads(row.right[0])["name"]],), words
            )
            for row in calls.rows
        )
        tasks.append(Task("labels", rows, calls.source))
    return tasks[0], tasks[1]


def banking77(data_folder: Path) -> tuple[Task, Task]:
    folder = data_folder / "classification" / "banking77"
    train, test = (
        read_task("labels", folder / f"{split}.csv", fields={"label": "category"}) for split in ("train", "test")
    )
    return train, test


def paragraphs(data_folder: Path, split: str) -> list[str]:
    text = (data_folder / "text" / "wikitext-2" / f"{split}.txt").read_text(encoding="utf-8")
    return [line.strip()[:CHARACTERS] for line in text.splitlines() if len(line) > CHARACTERS]


def _drawn(rows: Any, count: int) -> Any:
    if count > len(rows):
        raise SystemExit(f"{count} rows are asked for, and there are {len(rows)}")
    return random.Random(0).sample(list(rows), count)


def model_folder(name: str, steps: int, data_folder: Path, cache: Path) -> tuple[Path, str]:
    """(folder, what it is): "stories260K", a folder, or one made here once: "llama" for a Llama pretrained on WikiText-2,
    "llama_ends" for one whose paragraphs end with the end token, so that it knows what ends a label."""
    if name == "stories260K":
        return data_folder / "models" / name, "stories260K, 260,032 parameters, trained on short stories"
    if name not in ("llama", "llama_ends"):
        return Path(name), name
    folder, ends = cache / f"{name}-{steps}", name == "llama_ends"
    if not (folder / "LICENSE").is_file():  # the last that is written
        trained_model(
            "llama", folder, data_folder, texts=wikitext(data_folder, characters=None), steps=steps, ends=ends
        )
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "numpy") as file:
        count = sum(file.get_tensor(tensor).size for tensor in file.keys())  # noqa: SIM118
    text = "WikiText-2, an end token after each paragraph" if ends else "WikiText-2"
    return (
        folder,
        f"a Llama of {count:,} parameters, {steps} steps of 16 rows of 96 tokens of {text} (`tests/benchmarks/trained.py`)",
    )
