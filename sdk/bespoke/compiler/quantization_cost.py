# SPDX-License-Identifier: Apache-2.0
"""The cost of int4 weights to a model: the error of the weights, and the rise of the loss on everyday text.

The same code computes both losses on the same texts, once with the model's own weights and once with the bundle's. The texts
are the end of data/general.txt. Its beginning decides how much each column counts in quantization (activations.py), so the
loss is on other texts than the weights were fitted to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from bespoke.compiler.general import no_adapter
from bespoke.data.rows import TokenRows
from bespoke.golden.make import one_thread
from bespoke.golden.reference import Lane, Reference
from bespoke.golden.weights import BundleWeights, SourceWeights, Weights
from bespoke.model.quantization_error import QuantizationError
from bespoke.model.spec import ModelSpec
from bespoke.model.weight_source import WeightSource

__all__ = ["QuantizationCost", "losses_on_text"]

POSITIONS = 512  # positions of the texts: they take seconds on a model of half a billion weights


@dataclass(frozen=True)
class QuantizationCost:
    """Error of the weights, and losses in nats a token. Losses are None without a tokenizer that knows the texts."""

    error: QuantizationError = field(default_factory=QuantizationError)
    loss_before: float | None = None
    loss_after: float | None = None

    def __str__(self) -> str:
        lines = [str(self.error)]
        if self.loss_before is not None and self.loss_after is not None:
            rise = self.loss_after - self.loss_before
            lines.append(
                f"loss on everyday text {self.loss_before:.3f} -> {self.loss_after:.3f} nats a token ({rise:+.3f})"
            )
        return "; ".join(lines)


def losses_on_text(
    folder: Path, model: ModelSpec, source: WeightSource, files: Mapping[str, Path], rows: TokenRows | None
) -> tuple[float, float] | None:
    """Mean losses on the last `rows`, up to 512 positions, with the weights of `source` and with those of `files`."""
    if rows is None or not len(rows):
        return None
    lengths = np.diff(rows.offsets)[::-1]
    count = max(1, int(np.searchsorted((lengths - 1).cumsum(), POSITIONS, "right")))
    longest = lengths[:count].max()
    tokens, mask = torch.zeros(count, longest, dtype=torch.int64), torch.zeros(count, longest - 1)
    for number in range(count):
        row = rows.rows(len(rows) - 1 - number)
        tokens[number, : len(row.tokens)] = torch.from_numpy(row.tokens.astype(np.int64))
        mask[number, : len(row.mask) - 1] = torch.from_numpy(row.mask[1:].astype(np.float32))

    def loss(weights: Weights) -> float:
        lane = Lane(no_adapter(model), torch.float32, gradient=False)
        Reference(folder, model, weights).run([lane], tokens[:, :-1], tokens[:, 1:], mask)
        return lane.mean_loss

    with one_thread():
        return loss(SourceWeights(source, model)), loss(BundleWeights(files))
