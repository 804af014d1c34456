# SPDX-License-Identifier: Apache-2.0
"""What an error of a weight counts when a model is quantized: the mean square of the activation that its column is multiplied with.

The float model reads the start of the texts that ship with the SDK (data/general.txt), block by block, so that one dense block is
in memory at a time. It computes in float64 on one thread, and each mean is rounded to a power of two: so every processor finds the
same numbers, and builds the same weights. For a model that has no tokenizer, or knows too few of the texts' tokens, there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from bespoke.compiler.general import general_texts, no_adapter
from bespoke.data.text import Tokenizer
from bespoke.golden.make import MANY_WEIGHTS, one_thread
from bespoke.golden.reference import Lane, Reference
from bespoke.model.checkpoint import Checkpoint
from bespoke.model.convert import Source, sources_of
from bespoke.model.spec import ModelSpec

__all__ = ["column_counts", "text_windows"]

WINDOW = 128  # tokens read together
WINDOWS, FEW_WINDOWS = 8, 2  # the second of a model with MANY_WEIGHTS, where each token costs a pass through them
LEAST = -30  # the power of two that the least counts


def column_counts(
    folder: Path, model: ModelSpec, tokenizer: Tokenizer | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """By the checkpoint's name of a weight, float32 [in], from 2^LEAST to 1, a power of two each. Empty without such texts."""
    tokens = text_windows(model, tokenizer)
    if tokens is None:
        return {}
    with one_thread(), torch.no_grad():
        done = iter(range(1, len(model.blocks) + 1))
        reference = _FloatReference(folder, model, lambda: progress(next(done, 0), len(model.blocks)))
        h = reference.hidden(Lane(no_adapter(model), torch.float64, gradient=False), tokens)
        reference.saw(model.head_table_group, "table", h)
    return {name: _powers(squares) for name, squares in reference.squares.items()}


def text_windows(model: ModelSpec, tokenizer: Tokenizer | None) -> torch.Tensor | None:
    """Tokens [R, n] of the texts, one after the other."""
    width = min(WINDOW, model.config.max_positions)
    texts = general_texts(tokenizer, width, model.config.vocab_size)
    if texts is None:
        return None
    weights = len(model.blocks) * sum(out * columns for out, columns in model.config.linear_shapes.values())
    most = WINDOWS if weights < MANY_WEIGHTS else FEW_WINDOWS
    tokens = torch.from_numpy(texts.tokens.astype(np.int64))
    width = min(width, len(tokens))
    return tokens[: len(tokens) // width * width].view(-1, width)[:most]


def _powers(squares: np.ndarray) -> np.ndarray:
    largest = squares.max()
    if not 0 < largest < np.inf:  # nothing was seen, or what is not a number: conversion says so by the weights
        return np.ones(len(squares), np.float32)
    with np.errstate(divide="ignore"):
        powers = np.rint(np.log2(squares)) - np.rint(np.log2(largest))
    return np.ldexp(np.float32(1), np.clip(powers, LEAST, 0).astype(np.int32)).astype(np.float32)


class _FloatReference(Reference):
    """With the folder's weights as they are. `squares`: by the checkpoint's name of a weight, the mean square of each input."""

    def __init__(self, folder: Path, model: ModelSpec, on_visit: Callable[[], None]) -> None:
        super().__init__(folder, model, {}, on_visit)
        self.squares: dict[str, np.ndarray] = {}
        self._checkpoint = Checkpoint.open(folder)
        sources = sources_of(self._checkpoint, model.config)
        self._sources: Mapping[str, Mapping[str, Source]] = {
            group: {source.target: source for source in found} for group, found in sources.items()
        }
        for group, layer in zip(model.blocks, self._skeleton.layers, strict=True):
            for name in model.config.linear_shapes:
                part = layer.self_attn if hasattr(layer.self_attn, name) else layer.mlp
                getattr(part, name).register_forward_pre_hook(self._watch(group, name))

    def saw(self, group: str, name: str, x: torch.Tensor) -> None:
        """x [..., in] is what the weight is multiplied with."""
        self.squares[self._sources[group][name].name] = x.flatten(0, -2).square().mean(0).numpy()

    def read_linear(self, group: str, name: str, outs: Sequence[torch.Tensor]) -> None:
        for start, rows in self._checkpoint.chunks(self._sources[group][name].name):
            for out in outs:
                out[start : start + len(rows)] = torch.from_numpy(rows)

    def read_rows(self, group: str, rows: np.ndarray, out: torch.Tensor) -> None:
        name = self._sources[group]["table"].name
        for place, row in enumerate(rows.tolist()):
            out[place] = torch.from_numpy(self._checkpoint.rows(name, row, row + 1)[0])

    def small_tensors(self, group: str) -> Mapping[str, np.ndarray]:
        return {
            name: self._checkpoint.vector(source.name) + np.float32(source.add)
            for name, source in self._sources[group].items()
            if not source.quantized
        }

    def _watch(self, group: str, name: str) -> Callable[..., None]:
        return lambda module, operands: self.saw(group, name, operands[0])
