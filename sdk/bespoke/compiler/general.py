# SPDX-License-Identifier: Apache-2.0
"""The general set of a bundle that was given no data: some tokens on which the gate sees what a user's words do to the rest.

It judges and is never trained on. Where the model has a tokenizer these are everyday English texts that ship with the SDK
(data/general.txt, under its licence); where it has none, or knows too few of their tokens, samples of the base model. Which of the
two tells nonsense from a user's words was measured: docs/explanation/gate.md.
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

POSITIONS = 2048  # of the texts, at most: a gate on a model of half a billion weights takes seconds for them
MOST_UNKNOWN = 0.1  # of all tokens of the texts
SEED = 0


def general_texts(tokenizer: Tokenizer | None, length: int, vocabulary: int) -> TokenRows | None:
    """The texts that ship with the SDK, as far as they fit, in rows of `length` positions; None where the model cannot say them.

    The package `tokenizers` encodes them, so that a build with the default settings needs no core.
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
    made = TokenRows.from_rows(rows)
    if not rows or made.tokens.max() >= vocabulary or np.isin(made.tokens, tokenizer.unknown_ids).mean() > MOST_UNKNOWN:
        return None
    return made


def sample_shape(model: ModelSpec, length: int) -> tuple[int, int]:
    """Rows and tokens of a row that `base_samples` gives for plans of this length: each token costs a pass through the model."""
    weights = len(model.blocks) * sum(out * width for out, width in model.config.linear_shapes.values())
    rows, tokens = (32, 32) if weights < MANY_WEIGHTS else (16, 12)
    return rows, min(length, tokens) + 1


def hollow_samples(model: ModelSpec, length: int) -> TokenRows:
    """As many rows and bytes as `base_samples` gives, for who only counts them."""
    count, size = sample_shape(model, length)
    return TokenRows.from_rows([TokenRow(np.zeros(size, np.int32), np.zeros(size, np.uint8))] * count)


def base_samples(
    folder: Path,
    model: ModelSpec,
    weights: Mapping[str, Path],
    length: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> TokenRows:
    """What the base model itself writes behind a token drawn by counter, at temperature 1, every row for itself."""
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
    """Of a lane that runs the base alone."""
    shapes = model.config.piece_shapes(model.lora.model_copy(update={"rank": 1}))
    pieces = {name: torch.zeros(shape) for name, shape in shapes.items()}
    return lambda block: pieces
