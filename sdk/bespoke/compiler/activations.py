# SPDX-License-Identifier: Apache-2.0
"""What an error of a weight counts when a model is quantized: the mean square of the activation that its column is multiplied with.

The float model reads the start of the texts that ship with the SDK (data/general.txt), block by block, so that one dense block is
in memory at a time. It computes in float64 on one thread, and each mean is rounded to a power of two: so every processor finds the
same numbers, and builds the same weights. For a model that has no tokenizer, or knows too few of the texts' tokens, there are none.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from bespoke.compiler.general import general_texts, no_adapter
from bespoke.data.text import Tokenizer
from bespoke.golden.make import MANY_WEIGHTS, one_thread
from bespoke.golden.reference import Lane, Reference
from bespoke.golden.weights import SourceWeights
from bespoke.model.convert import sources_of
from bespoke.model.spec import ModelSpec
from bespoke.model.weight_source import WeightSource

__all__ = ["column_counts", "text_windows"]

WINDOW = 128  # tokens read together
WINDOWS, FEW_WINDOWS = 8, 2  # the second of a model with MANY_WEIGHTS, where each token costs a pass through them
LEAST = -30  # the power of two that the least counts


def column_counts(
    folder: Path,
    model: ModelSpec,
    source: WeightSource,
    tokenizer: Tokenizer | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, np.ndarray]:
    """By the name of a weight in `source`, float32 [in], from 2^LEAST to 1, a power of two each. Empty without such texts."""
    tokens = text_windows(model, tokenizer)
    if tokens is None:
        return {}
    names = {(group, one.target): one.name for group, of in sources_of(source, model.config).items() for one in of}
    squares: dict[str, np.ndarray] = {}

    def see(group: str, name: str, x: torch.Tensor) -> None:
        squares[names[group, name]] = x.flatten(0, -2).square().mean(0).numpy()

    done = iter(range(1, len(model.blocks) + 1))
    with one_thread(), torch.no_grad():
        weights = SourceWeights(source, model)
        reference = Reference(folder, model, weights, lambda: progress(next(done, 0), len(model.blocks)))
        reference.watch_inputs(see)
        h = reference.hidden(Lane(no_adapter(model), torch.float64, gradient=False), tokens)
    see(model.head_table_group, "table", h)
    return {name: _powers(found) for name, found in squares.items()}


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
