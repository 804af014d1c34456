# SPDX-License-Identifier: Apache-2.0
"""A bundle's rows of data: the rows of the build's data file, or texts by which the gate judges."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bespoke.bundle.manifest import DataRecord
from bespoke.bundle.writer import BundleWriter
from bespoke.compiler.encoding import core_encoder
from bespoke.compiler.general import base_samples, general_texts, hollow_samples
from bespoke.compiler.request import AUTO, BuildListener, BuildRequest
from bespoke.compiler.text import TextRules
from bespoke.data.prepare import DataReport, prepare
from bespoke.data.rows import TokenRows
from bespoke.model.spec import ModelSpec

__all__ = ["write_base_samples", "write_data"]


def write_data(
    request: BuildRequest, text: TextRules, writer: BundleWriter, progress: BuildListener
) -> tuple[DataRecord, DataReport | None]:
    """Write the rows of the data file, or the SDK's texts for "auto". Without a tokenizer "auto" writes nothing yet."""
    if request.data is None:
        return DataRecord(train=None, valid=None), None
    if request.data == AUTO:
        rows = general_texts(text.tokenizer, request.sequence_lengths[-1], text.record.vocab_size)
        return (DataRecord(train=None, valid=None) if rows is None else _write_judging_rows(rows, writer)), None

    training = request.training
    with core_encoder(writer.work, text.record, request.sequence_lengths[-1]) as encoder:
        prepared = prepare(
            request.data,
            encoder,
            format=request.data_format,  # type: ignore[arg-type]
            fields=request.fields,
            encoding=request.encoding,
            seed=training.seed,
            packing=training.packing,
            turns=text.turn_reader(),
            on_row=lambda row: progress("data", row, 0),
        )

    names: dict[str, str | None] = {"train": None, "valid": None}
    for name, rows in (("train", prepared.train), ("valid", prepared.valid)):
        if len(rows):
            names[name] = f"data/{name}.safetensors"
            writer.add_bytes(f"data/{name}.safetensors", rows.to_bytes())
    return DataRecord(**names), prepared.report


def write_base_samples(
    request: BuildRequest,
    folder: Path,
    model: ModelSpec,
    weights: Mapping[str, Path],
    writer: BundleWriter,
    progress: BuildListener,
    hollow: bool,
) -> DataRecord:
    """Write samples of the base model, for a model without a tokenizer. `hollow`: rows of zeros of the same size."""
    length = request.sequence_lengths[-1]
    if hollow:
        rows = hollow_samples(model, length)
    else:
        rows = base_samples(folder, model, weights, length, lambda done, total: progress("data", done, total))
    return _write_judging_rows(rows, writer)


def _write_judging_rows(rows: TokenRows, writer: BundleWriter) -> DataRecord:
    """Write rows by which the gate judges and on which no run trains."""
    writer.add_bytes("data/valid.safetensors", rows.to_bytes())
    return DataRecord(train=None, valid="data/valid.safetensors")
