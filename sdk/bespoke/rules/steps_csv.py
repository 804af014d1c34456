# SPDX-License-Identifier: Apache-2.0
"""Exports the steps of a training call as a CSV table for other programs."""

from __future__ import annotations

import csv
import io

from bespoke.rules.report import TrainReport

COLUMNS = ("step", "loss", "seconds", "peak_bytes", "judged_loss")


def steps_csv(report: TrainReport) -> str:
    """A table with a line for each step of the call. Steps have their numbers in the run.

    `loss` is in nats a token, on the step's own rows. `judged_loss` is the loss on the held-out examples that choose the best step,
    or empty if this step was not judged. `peak_bytes` is anonymous memory, as in the report.
    """
    judged = {judgement.step: judgement.loss for judgement in report.judgements}
    first = report.total_steps - report.steps + 1
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    columns = zip(report.losses, report.step_seconds, report.step_peak_bytes, strict=False)
    for step, (loss, seconds, peak) in enumerate(columns, first):
        writer.writerow([step, loss, seconds, peak, judged.get(step, "")])
    return text.getvalue()
