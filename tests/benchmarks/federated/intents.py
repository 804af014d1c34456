# SPDX-License-Identifier: Apache-2.0
"""The task of the simulation of federated learning: which of seven things a sentence asks for (SNIPS), told by one word.

A sentence is followed by " is", and the next word is the label. Eighty devices have forty sentences each. How many of which kind is
drawn for each device from a Dirichlet distribution, so most devices see few kinds. The cloud has sentences of its own, of the same
kinds, of three of them, of another task, or with wrong labels.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tokenizers import Tokenizer

__all__ = ["LENGTH", "WORDS", "Public", "Sentences", "World", "words_of", "world"]

LENGTH = 24  # tokens of a row
WORDS = {
    "AddToPlaylist": " add",
    "BookRestaurant": " table",
    "GetWeather": " we",
    "PlayMusic": " pl",
    "RateBook": " r",
    "SearchCreativeWork": " se",
    "SearchScreeningEvent": " m",
}
KINDS = len(WORDS)
END = " is"
THREE = (0, 2, 4)
CLOUD, PUBLIC = 1200, 512  # sentences of the training file that the cloud keeps, and those that it uses

Public = Literal["same", "three", "other", "wrong"]


@dataclass(frozen=True)
class Sentences:
    """tokens: int64 [n, LENGTH], padded with 0; last: the position that predicts the label; kinds: 0 to 6; words: token ids."""

    tokens: np.ndarray
    last: np.ndarray
    kinds: np.ndarray
    words: np.ndarray

    def __len__(self) -> int:
        return len(self.kinds)

    def at(self, numbers: Any) -> Sentences:
        return Sentences(self.tokens[numbers], self.last[numbers], self.kinds[numbers], self.words)

    def batches(self, rows: int) -> list[dict[str, Any]]:
        """As the lab reads them, `rows` to a batch; the last is padded with rows that do not count."""
        found = []
        for first in range(0, len(self), rows):
            part = self.at(slice(first, first + rows))
            tokens, targets = np.zeros((2, rows, LENGTH), np.int64)
            mask = np.zeros((rows, LENGTH), np.float32)
            tokens[: len(part)] = part.tokens
            at = np.arange(len(part)), part.last
            targets[at], mask[at] = part.words[part.kinds], 1
            cells = {"tokens": tokens, "targets": targets, "mask": mask}
            found.append(
                {"rows": rows, "length": LENGTH, **{name: one.ravel().tolist() for name, one in cells.items()}}
            )
        return found


@dataclass(frozen=True)
class World:
    """train: all sentences; clients: numbers in it of each device; public: what the cloud trains on; test: to judge adapters by."""

    train: Sentences
    clients: list[np.ndarray]
    public: Sentences
    test: Sentences


def tokenizer_of(model: Path) -> Tokenizer:
    """That of a model folder, or of a GGUF file as transformers reads it."""
    if model.is_dir():
        return Tokenizer.from_file(str(model / "tokenizer.json"))
    from transformers import AutoTokenizer

    found: Tokenizer = AutoTokenizer.from_pretrained(model.parent, gguf_file=model.name).backend_tokenizer
    return found


def words_of(tokenizer: Tokenizer) -> np.ndarray:
    """The token of each label word."""
    ids = [tokenizer.encode(word, add_special_tokens=False).ids for word in WORDS.values()]
    assert all(len(one) == 1 for one in ids), f"label words of several tokens: {ids}"
    return np.array([one[0] for one in ids])


def sentences(tokenizer: Tokenizer, texts: Sequence[str], kinds: Sequence[int]) -> Sentences:
    """Those that fit into a row."""
    end = tokenizer.encode(END, add_special_tokens=False).ids
    rows = [[*tokenizer.encode(text, add_special_tokens=False).ids, *end] for text in texts]
    fit = [number for number, row in enumerate(rows) if len(row) <= LENGTH]
    tokens = np.zeros((len(fit), LENGTH), np.int64)
    for place, number in enumerate(fit):
        tokens[place, : len(rows[number])] = rows[number]
    last = np.array([len(rows[number]) - 1 for number in fit])
    return Sentences(tokens, last, np.asarray(kinds)[fit], words_of(tokenizer))


def snips(data_folder: Path, split: str, most: int, seed: int) -> tuple[list[str], list[int]]:
    lines = (data_folder / "function_calling" / "snips" / f"fc_{split}.jsonl").read_text(encoding="utf-8").splitlines()
    drawn = [json.loads(lines[number]) for number in np.random.default_rng(seed).permutation(len(lines))[:most]]
    names = list(WORDS)
    return [row["query"] for row in drawn], [names.index(row["call"]["name"]) for row in drawn]


def banking(data_folder: Path, most: int, seed: int) -> tuple[list[str], list[int]]:
    """Another task with the same label words: 77 intents of bank customers, each told by one of the seven."""
    with (data_folder / "classification" / "banking77" / "train.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = sorted({row["category"] for row in rows})
    drawn = [rows[number] for number in np.random.default_rng(seed).permutation(len(rows))[:most]]
    return [row["text"] for row in drawn], [names.index(row["category"]) % KINDS for row in drawn]


def world(
    model: Path,
    data_folder: Path,
    seed: int,
    public: Public = "same",
    *,
    clients: int = 80,
    each: int = 40,
    concentration: float = 0.1,
) -> World:
    tokenizer = tokenizer_of(model)
    train = sentences(tokenizer, *snips(data_folder, "train", 9500, seed))
    test = sentences(tokenizer, *snips(data_folder, "valid", 700, 0))
    random = np.random.default_rng(100 + seed)
    order = random.permutation(len(train))
    cloud, rest = order[:CLOUD], order[CLOUD:]
    devices = dealt(rest, train.kinds, clients, each, concentration, random)
    return World(train, devices, public_sentences(tokenizer, data_folder, train.at(cloud), public, seed), test)


def dealt(
    numbers: np.ndarray, kinds: np.ndarray, clients: int, each: int, concentration: float, random: np.random.Generator
) -> list[np.ndarray]:
    """Sentences for each device, of kinds in shares of its own. No sentence goes to two devices."""
    left = [list(numbers[kinds[numbers] == kind]) for kind in range(KINDS)]
    devices = []
    for _ in range(clients):
        shares = random.dirichlet([concentration] * KINDS)
        mine = []
        while len(mine) < each:
            some = np.array([len(one) > 0 for one in left], float)
            weights = some * shares if (some * shares).sum() > 1e-9 else some
            mine.append(left[random.choice(KINDS, p=weights / weights.sum())].pop())
        devices.append(np.array(mine))
    return devices


def public_sentences(tokenizer: Tokenizer, data_folder: Path, cloud: Sentences, public: Public, seed: int) -> Sentences:
    if public == "other":
        return sentences(tokenizer, *banking(data_folder, 1500, seed)).at(slice(PUBLIC))
    if public == "three":
        return cloud.at(np.flatnonzero(np.isin(cloud.kinds, THREE))[:PUBLIC])
    first = cloud.at(slice(PUBLIC))
    if public == "same":
        return first
    return Sentences(first.tokens, first.last, (first.kinds + 1) % KINDS, first.words)  # each kind has another's word
