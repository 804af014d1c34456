# SPDX-License-Identifier: Apache-2.0
"""A bundle's rows of data: those of the build's data file, the base model's answers that runs rehearse, and what the gate reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from bespoke.bundle.manifest import DataRecord
from bespoke.bundle.writer import BundleWriter
from bespoke.compiler.encoding import core_encoder
from bespoke.compiler.general import base_samples, general_texts, hollow_samples
from bespoke.compiler.rehearsal import RehearsalReport, rehearse
from bespoke.compiler.request import AUTO, BuildListener, BuildRequest
from bespoke.compiler.text import TextRules
from bespoke.data.prepare import DataReport, prepare
from bespoke.data.rows import TokenRows
from bespoke.errors import BuildWarning
from bespoke.model.spec import ModelSpec

__all__ = ["BundleData", "base_model_data", "read_data", "write_data"]

LONG_ENOUGH = 128  # tokens of a row in which most prompts leave an answer its room


@dataclass(frozen=True, eq=False)
class BundleData:
    """Rows by their use, as the manifest names them, and the reports on them."""

    train: TokenRows | None = None
    valid: TokenRows | None = None
    behaviour: TokenRows | None = None
    file_report: DataReport | None = None
    rehearsal_report: RehearsalReport | None = None


def read_data(request: BuildRequest, text: TextRules, writer: BundleWriter, progress: BuildListener) -> BundleData:
    """The rows of the data file, or the SDK's texts for "auto": what is known before the weights are."""
    if request.data is None:
        return BundleData()
    if request.data == AUTO:
        return BundleData(valid=general_texts(text.tokenizer, request.sequence_lengths[-1], text.record.vocab_size))

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
    return BundleData(train=prepared.train, valid=prepared.valid, file_report=prepared.report)


def base_model_data(
    data: BundleData,
    request: BuildRequest,
    folder: Path,
    text: TextRules,
    model: ModelSpec,
    weights: Mapping[str, Path],
    context: int,
    progress: BuildListener,
    hollow: bool,
) -> BundleData:
    """`data` with what the base model writes: answers to rehearse, or samples for a model without a tokenizer.

    hollow: rows of zeros of the largest size
    """
    if request.data is None:
        return data
    length = request.sequence_lengths[-1]

    def tell(done: int, total: int) -> None:
        progress("rehearsal", done, total)

    if request.rehearsal:
        rehearsed = rehearse(folder, text, model, weights, length, context, tell, hollow=hollow)
        if rehearsed is not None:
            warn_of_short_rows(rehearsed.report, length)
            return replace(
                data,
                train=rehearsed.train if data.train is None else joined(data.train, rehearsed.train),
                valid=None if request.data == AUTO else data.valid,
                behaviour=rehearsed.behaviour,
                rehearsal_report=rehearsed.report,
            )
    if request.data == AUTO and data.valid is None:
        if hollow:
            return replace(data, valid=hollow_samples(model, length))
        samples = base_samples(folder, model, weights, length, lambda done, total: progress("data", done, total))
        return replace(data, valid=samples)
    return data


def warn_of_short_rows(report: RehearsalReport, length: int) -> None:
    """Issues a BuildWarning where most of the answers that a model rehearses are cut by the length of a row."""
    answers = report.answers + report.held_out
    if 2 * report.no_room > answers:
        BuildWarning.warn(
            f"{report.no_room} of the {answers} answers that runs rehearse are cut: the longest sequence has {length} tokens. The "
            f"model may forget how to go on and where to end. Add {LONG_ENOUGH} to the sequence lengths"
        )


def joined(first: TokenRows, second: TokenRows) -> TokenRows:
    """The rows of both."""
    return TokenRows.from_rows(rows.rows(index) for rows in (first, second) for index in range(len(rows)))


def write_data(data: BundleData, writer: BundleWriter) -> DataRecord:
    """Write the rows, a file for each use that has any."""
    names: dict[str, str | None] = {}
    for name, rows in (("train", data.train), ("valid", data.valid), ("behaviour", data.behaviour)):
        names[name] = f"data/{name}.safetensors" if rows is not None and len(rows) else None
        if rows is not None and names[name] is not None:
            writer.add_bytes(f"data/{name}.safetensors", rows.to_bytes())
    return DataRecord(**names)
