# SPDX-License-Identifier: Apache-2.0
"""What a model loses when its weights become int4: the error of the weights, and of the loss on everyday text.

Both losses are of the same texts by the same code, with the model's own weights and with the bundle's: the end of data/general.txt,
whose beginning says which weights count (activations.py), so that the loss is not of texts that the weights were chosen by.
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

POSITIONS = 512  # of the texts: seconds for a model of half a billion weights


@dataclass(frozen=True)
class QuantizationCost:
    """`error`: of the weights. Losses: nats a token, None where the model has no tokenizer or knows few of the tokens."""

    error: QuantizationError = field(default_factory=QuantizationError)
    loss_before: float | None = None
    loss_after: float | None = None

    def __str__(self) -> str:
        lines = [str(self.error)]
        if self.loss_before is not None and self.loss_after is not None:
            more = self.loss_after - self.loss_before
            lines.append(
                f"loss on everyday text {self.loss_before:.3f} -> {self.loss_after:.3f} nats a token ({more:+.3f})"
            )
        return "; ".join(lines)


def losses_on_text(
    folder: Path, model: ModelSpec, source: WeightSource, files: Mapping[str, Path], rows: TokenRows | None
) -> tuple[float, float] | None:
    """Mean losses of the last of `rows`, as many as fill 512 positions, with the weights of `source` and with those of `files`."""
    if rows is None or not len(rows):
        return None
    lengths = np.diff(rows.offsets)[::-1]
    count = max(1, int(np.searchsorted((lengths - 1).cumsum(), POSITIONS, "right")))
    tokens, mask = (
        torch.zeros(count, lengths[:count].max(), dtype=torch.int64),
        torch.zeros(count, lengths[:count].max() - 1),
    )
    for row in range(count):
        one = rows.rows(len(rows) - 1 - row)
        tokens[row, : len(one.tokens)] = torch.from_numpy(one.tokens.astype(np.int64))
        mask[row, : len(one.mask) - 1] = torch.from_numpy(one.mask[1:].astype(np.float32))

    def loss(weights: Weights) -> float:
        lane = Lane(no_adapter(model), torch.float32, gradient=False)
        Reference(folder, model, weights).run([lane], tokens[:, :-1], tokens[:, 1:], mask)
        return lane.mean_loss

    with one_thread():
        return loss(SourceWeights(source, model)), loss(BundleWeights(files))
