# SPDX-License-Identifier: Apache-2.0
"""The general set of a bundle without data: tokens on which the gate measures what training on a user's words forgets.

No run trains on it. If the model has a tokenizer, it holds everyday English texts that ship with the SDK (data/general.txt,
under its licence). If the model has none or knows too few of their tokens, it holds samples of the base model. How well each
of the two separates nonsense from a user's words: docs/explanation/gate.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch

from bespoke.data.rows import TokenRow, TokenRows, text_rows
from bespoke.data.text import Tokenizer
from bespoke.golden.make import MANY_WEIGHTS, one_thread
from bespoke.golden.reference import Lane, Reference
from bespoke.golden.weights import BundleWeights
from bespoke.model.spec import ModelSpec
from bespoke.rules.noise import Stream, philox
from bespoke.rules.sampling import choose_token

__all__ = ["base_samples", "general_texts", "hollow_samples", "no_adapter", "sample_shape"]

POSITIONS = 2048  # the most of the texts: a gate on a model of half a billion weights takes seconds for them
MOST_UNKNOWN = 0.1  # share of unknown tokens in the texts
SEED = 0


def general_texts(tokenizer: Tokenizer | None, length: int, vocabulary: int) -> TokenRows | None:
    """The SDK's texts in rows of `length` positions, as many as fit; None if the model knows too few of their tokens.

    The package `tokenizers` encodes them, so a build with the default settings needs no core.
    """
    if tokenizer is None:
        return None
    rows: list[TokenRow] = []
    positions = 0
    for text in (files("bespoke.data") / "general.txt").read_text(encoding="utf-8").splitlines():
        windows = text_rows(tokenizer.encode(text), tokenizer.bos_id, length)
        positions += sum(len(row.tokens) - 1 for row in windows)
        if positions > POSITIONS:
            break
        rows += windows

    texts = TokenRows.from_rows(rows)
    if not rows or texts.tokens.max() >= vocabulary:
        return None
    if np.isin(texts.tokens, tokenizer.unknown_ids).mean() > MOST_UNKNOWN:
        return None
    return texts


def sample_shape(model: ModelSpec, length: int) -> tuple[int, int]:
    """(rows, tokens a row) of `base_samples` for plans of this length. Each token costs a pass through the model."""
    weights = len(model.blocks) * sum(out * width for out, width in model.config.linear_shapes.values())
    rows, tokens = (32, 32) if weights < MANY_WEIGHTS else (16, 12)
    return rows, min(length, tokens) + 1


def hollow_samples(model: ModelSpec, length: int) -> TokenRows:
    """Rows of zeros of the size of `base_samples`, for an estimate."""
    count, size = sample_shape(model, length)
    return TokenRows.from_rows([TokenRow(np.zeros(size, np.int32), np.zeros(size, np.uint8))] * count)


def base_samples(
    folder: Path,
    model: ModelSpec,
    weights: Mapping[str, Path],
    length: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TokenRows:
    """Samples of the base model at temperature 1. Each row begins with a token drawn by counter."""
    count, size = sample_shape(model, length)
    vocabulary = model.config.vocab_size
    first = philox(0, count, (0, Stream.SAMPLE, 0), SEED)[0].astype(np.int64) % vocabulary
    tokens = torch.from_numpy(first)[:, None]  # (R, n)

    with one_thread():
        reference = Reference(folder, model, BundleWeights(weights))
        lane = Lane(no_adapter(model), torch.float64, gradient=False)
        while tokens.shape[1] < size:
            logits = reference.next_logits(lane, tokens).numpy()  # (R, V)
            place = tokens.shape[1]
            drawn = [
                choose_token(logits[row], temperature=1.0, seed=SEED, position=row * size + place)
                for row in range(count)
            ]
            tokens = torch.cat([tokens, torch.tensor(drawn)[:, None]], 1)
            progress(place, size - 1)

    mask = np.ones(size, np.uint8)
    mask[0] = 0
    return TokenRows.from_rows(TokenRow(row.astype(np.int32), mask) for row in tokens.numpy())


def no_adapter(model: ModelSpec) -> Callable[[int], dict[str, torch.Tensor]]:
    """Adapter of a lane that runs the base model alone: pieces of zeros for every block."""
    shapes = model.config.piece_shapes(model.lora.model_copy(update={"rank": 1}))
    pieces = {name: torch.zeros(shape) for name, shape in shapes.items()}
    return lambda block: pieces
