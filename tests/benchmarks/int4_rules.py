# SPDX-License-Identifier: Apache-2.0
"""Rules for the scale of a group of int4 weights, and the loss of a model whose weights each of them quantized and decoded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from bespoke.compiler.activations import column_counts
from bespoke.config import Lora
from bespoke.data.text import Tokenizer
from bespoke.model.checkpoint import Checkpoint
from bespoke.model.families import read_config
from bespoke.model.quantize import GROUP, dequantize, quantize
from bespoke.model.spec import ModelSpec

WINDOW = 512
ROWS = 256  # rows of a weight that are quantized together
Rule = Callable[
    [np.ndarray, np.ndarray | None], np.ndarray
]  # weight [rows, in], counts [in] or none -> what is decoded


def _grouped(weight: np.ndarray) -> np.ndarray:
    padded = np.pad(weight, ((0, 0), (0, -weight.shape[1] % GROUP)))
    return padded.reshape(len(weight), -1, GROUP)


def _decoded(w: np.ndarray, scales: np.ndarray) -> np.ndarray:
    s = scales.astype(np.float16).astype(np.float32)[..., None]
    return np.asarray(np.clip(np.rint(w / np.where(s == 0, np.inf, s)), -8, 7) * s)


def _by_seven(w: np.ndarray) -> np.ndarray:
    return _decoded(w, np.abs(w).max(-1) / 7)


def _signed(w: np.ndarray) -> np.ndarray:
    largest = np.take_along_axis(w, np.abs(w).argmax(-1, keepdims=True), -1)[..., 0]
    return _decoded(w, largest / -8)


def _nearer(w: np.ndarray) -> np.ndarray:
    one, other = _signed(w), _by_seven(w)
    errors = [np.square(part - w).sum(-1, keepdims=True) for part in (one, other)]
    return np.where(errors[0] <= errors[1], one, other)


def _of_groups(rule: Callable[[np.ndarray], np.ndarray]) -> Rule:
    return lambda weight, counts: rule(_grouped(weight)).reshape(len(weight), -1)[:, : weight.shape[1]]


def _plain(weight: np.ndarray, counts: np.ndarray | None) -> np.ndarray:
    return dequantize(*quantize("w", weight), weight.shape[1])


def _weighted(weight: np.ndarray, counts: np.ndarray | None) -> np.ndarray:
    return dequantize(*quantize("w", weight, counts), weight.shape[1])


def _q4_0(w: np.ndarray) -> np.ndarray:
    kind = gguf.GGMLQuantizationType.Q4_0
    return np.asarray(gguf.quants.dequantize(gguf.quants.quantize(w.reshape(-1, GROUP), kind), kind))


RULES: dict[str, Rule] = {
    "largest / 7": _of_groups(_by_seven),
    "signed largest / -8": _of_groups(_signed),
    "nearer of these two": _of_groups(_nearer),
    "bespoke, all columns alike": _plain,
    "bespoke": _weighted,
    "llama.cpp's Q4_0": _of_groups(_q4_0),
}


class Measured:
    """A float model of a folder with a tokenizer, and the first `count` tokens of a text in windows of its own."""

    def __init__(self, folder: Path, text: str, count: int) -> None:
        from transformers import AutoModelForCausalLM

        self.model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        tokenizer = Tokenizer.open(folder)
        tokens = torch.tensor(tokenizer.encode(text)[:count])
        begin = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
        self.rows = [torch.cat([torch.tensor(begin, dtype=torch.int64), part]) for part in tokens.split(WINDOW)]
        self.counts = column_counts(folder, ModelSpec(read_config(folder), Lora()), Checkpoint.open(folder), tokenizer)
        tied = self.model.get_output_embeddings().weight is self.model.get_input_embeddings().weight
        self.weights = {name: value for name, value in self.model.named_parameters() if value.ndim == 2}
        assert ("lm_head.weight" in self.weights) != tied
        self.originals = {name: value.detach().clone() for name, value in self.weights.items()}

    def quantize(self, rule: Rule) -> None:
        for name, weight in self.weights.items():
            original, counts = self.originals[name].numpy(), self.counts.get(name)
            for start in range(0, len(original), ROWS):
                found = rule(original[start : start + ROWS], counts)
                weight.data[start : start + ROWS] = torch.from_numpy(np.ascontiguousarray(found))

    @torch.no_grad()
    def nats(self) -> float:
        """Mean loss of a token."""
        total = sum(float(loss.double().sum()) for loss in self._losses())
        return total / sum(len(row) - 1 for row in self.rows)

    def _losses(self) -> Iterator[torch.Tensor]:
        for row in self.rows:
            logits = self.model(input_ids=row[None], use_cache=False).logits[0, :-1]
            yield torch.nn.functional.cross_entropy(logits, row[1:], reduction="none")


def perplexity(nats: float) -> float:
    return math.exp(nats)
