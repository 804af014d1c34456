# SPDX-License-Identifier: Apache-2.0
"""A bundle's int4 weights, the cost of their quantization, and the initial adapter."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bespoke.bundle.writer import BundleWriter
from bespoke.compiler.activations import column_counts
from bespoke.compiler.general import general_texts
from bespoke.compiler.opened_model import OpenedModel
from bespoke.compiler.quantization_cost import QuantizationCost, losses_on_text
from bespoke.compiler.request import BuildListener, BuildRequest
from bespoke.compiler.text import TextRules
from bespoke.model.convert import convert, hollow_weights
from bespoke.model.quantization_error import QuantizationError
from bespoke.model.spec import ModelSpec
from bespoke.rules.noise import noise

__all__ = ["initial_adapter", "quantization_cost", "write_weights"]


def write_weights(
    opened: OpenedModel,
    model: ModelSpec,
    text: TextRules,
    context: int,
    writer: BundleWriter,
    progress: BuildListener,
    hollow: bool,
) -> tuple[dict[str, Path], QuantizationError]:
    """Write the weights; returns the files by group, and the error of quantization. Either all files appear or none."""
    error = QuantizationError()
    with tempfile.TemporaryDirectory(dir=writer.path_for("weights/embedding.safetensors").parent.parent) as temporary:
        if hollow:
            files = hollow_weights(opened.weights, opened.config, temporary, context=context)
        else:
            counts = column_counts(
                opened.folder,
                model,
                opened.weights,
                text.tokenizer,
                lambda done, total: progress("activations", done, total),
            )
            files = convert(
                opened.weights,
                opened.config,
                temporary,
                context=context,
                counts=counts,
                progress=lambda done, total: progress("weights", done, total),
                error=error,
            )
        written = {group: path.rename(writer.path_for(f"weights/{group}.safetensors")) for group, path in files.items()}
    return written, error


def quantization_cost(
    request: BuildRequest,
    opened: OpenedModel,
    model: ModelSpec,
    files: Mapping[str, Path],
    text: TextRules,
    error: QuantizationError,
) -> QuantizationCost:
    """The cost of quantization, with the loss on everyday text before and after if the model has a tokenizer."""
    rows = general_texts(text.tokenizer, request.sequence_lengths[-1], text.record.vocab_size)
    losses = losses_on_text(opened.folder, model, opened.weights, files, rows) or (None, None)
    return QuantizationCost(error, *losses)


def initial_adapter(model: ModelSpec, seed: int) -> dict[str, np.ndarray]:
    """A ~ N(0, 1 / (3 in)), the variance of PEFT's Kaiming-uniform; B = 0. A is drawn from the noise counter at step 0."""
    tensors = {}
    for block, group in enumerate(model.blocks):
        for tensor, (name, shape) in enumerate(model.adapter_shapes(group).items()):
            if name.endswith("lora_A"):
                drawn = noise(shape, seed=seed, step=0, query=0, block=block, tensor=tensor)
                tensors[f"{group}.{name}"] = drawn * np.float32((3 * shape[1]) ** -0.5)
            else:
                tensors[f"{group}.{name}"] = np.zeros(shape, np.float32)
    return tensors
