# SPDX-License-Identifier: Apache-2.0
"""Weight of an error in each column for quantization: the mean square of the activation that the column multiplies.

The float model reads the start of the SDK's texts (data/general.txt) block by block, so a single dense block is in memory at
a time. It computes in float64 on a single thread, and each mean is rounded to a power of two. So every processor gets the
same numbers and builds the same weights. A model without a tokenizer that knows the texts has no such counts.
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
WINDOWS, FEW_WINDOWS = 8, 2  # FEW_WINDOWS for a model with MANY_WEIGHTS: each token costs a pass through them
LEAST = -30  # exponent of the smallest count, a power of two


def column_counts(
    folder: Path,
    model: ModelSpec,
    source: WeightSource,
    tokenizer: Tokenizer | None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, np.ndarray]:
    """Counts of the columns, float32 [in], by the weight's name in `source`; powers of two from 2^LEAST to 1.

    Empty without texts that the model knows.
    """
    tokens = text_windows(model, tokenizer)
    if tokens is None:
        return {}
    names = {
        (group, tensor.target): tensor.name
        for group, tensors in sources_of(source, model.config).items()
        for tensor in tensors
    }
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
    return {name: _powers(means) for name, means in squares.items()}


def text_windows(model: ModelSpec, tokenizer: Tokenizer | None) -> torch.Tensor | None:
    """Windows [R, n] of the texts' tokens, in order."""
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
    """Mean squares over their largest, rounded to powers of two."""
    largest = squares.max()
    if not 0 < largest < np.inf:  # all zero or not finite; the conversion refuses weights that are not finite
        return np.ones(len(squares), np.float32)
    with np.errstate(divide="ignore"):
        powers = np.rint(np.log2(squares)) - np.rint(np.log2(largest))
    return np.ldexp(np.float32(1), np.clip(powers, LEAST, 0).astype(np.int32)).astype(np.float32)
