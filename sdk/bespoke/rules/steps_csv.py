# SPDX-License-Identifier: Apache-2.0
"""The steps of a training call as a table for other programs."""

from __future__ import annotations

import csv
import io

from bespoke.rules.report import TrainReport

COLUMNS = ("step", "loss", "seconds", "peak_bytes", "judged_loss")


def steps_csv(report: TrainReport) -> str:
    """A line for each step of the call, from its number in the run on.

    `loss` in nats a token, of the step's own rows; `judged_loss` on the held-out examples that choose the best step, where this
    step was judged, else empty. `peak_bytes` of anonymous memory, as in the report.
    """
    judged = {one.step: one.loss for one in report.judgements}
    first = report.total_steps - report.steps + 1
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    columns = zip(report.losses, report.step_seconds, report.step_peak_bytes, strict=False)
    for step, (loss, seconds, peak) in enumerate(columns, first):
        writer.writerow([step, loss, seconds, peak, judged.get(step, "")])
    return text.getvalue()
