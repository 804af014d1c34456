# SPDX-License-Identifier: Apache-2.0
"""A bundle's rows of data: of the build's own file, or texts by which the gate judges."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bespoke.bundle.manifest import DataRecord
from bespoke.bundle.writer import BundleWriter
from bespoke.compiler.encoding import core_encoder
from bespoke.compiler.general import base_samples, general_texts, hollow_samples
from bespoke.compiler.request import AUTO, BuildRequest, Progress
from bespoke.compiler.text import Text
from bespoke.data.prepare import DataReport, prepare
from bespoke.data.rows import TokenRows
from bespoke.model.spec import ModelSpec

__all__ = ["write_base_samples", "write_data"]


def write_data(
    request: BuildRequest, text: Text, writer: BundleWriter, progress: Progress
) -> tuple[DataRecord, DataReport | None]:
    """The rows of its file, or the texts of its own; of "auto" without a tokenizer nothing yet."""
    if request.data is None:
        return DataRecord(train=None, valid=None), None
    if request.data == AUTO:
        rows = general_texts(text.tokenizer, request.sequence_lengths[-1], text.record.vocab_size)
        return (DataRecord(train=None, valid=None) if rows is None else _judging(rows, writer)), None
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
    progress: Progress,
    hollow: bool,
) -> DataRecord:
    """What a model without a tokenizer writes itself; `hollow`: rows of that length."""
    length = request.sequence_lengths[-1]
    if hollow:
        return _judging(hollow_samples(model, length), writer)
    return _judging(
        base_samples(folder, model, weights, length, lambda done, total: progress("data", done, total)), writer
    )


def _judging(rows: TokenRows, writer: BundleWriter) -> DataRecord:
    """Rows that the gate looks at and no run trains on."""
    writer.add_bytes("data/valid.safetensors", rows.to_bytes())
    return DataRecord(train=None, valid="data/valid.safetensors")
