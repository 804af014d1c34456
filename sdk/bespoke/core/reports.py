# SPDX-License-Identifier: Apache-2.0
"""Converts the core's JSON reports into records of the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from bespoke.rules.report import STAGES, Evaluation, JudgedStep, MemoryReport, TrainReport

__all__ = ["evaluation", "fields_of_the_core", "train_report"]

_FROM_THE_PARENT = ("enforced_by",)  # the parent sets the limit, so the core does not know what enforces it


def fields_of_the_core(report: type) -> tuple[str, ...]:
    """Returns what the core fills of a report or record. bindings/schema/*.inc and *.schema.json list it."""
    derived = ("peak_bytes",) if issubclass(report, TrainReport) else ()
    return (*derived, *_stored(report))


def _stored(report: type) -> tuple[str, ...]:
    return tuple(item.name for item in fields(report) if item.name not in _FROM_THE_PARENT)


def train_report(answer: Mapping[str, Any]) -> TrainReport:
    """Returns the core's report as a record. A number that is not finite is null in JSON."""
    values = _values(TrainReport, answer)
    stages = values["seconds_by_stage"]
    converted = {
        "losses": tuple(_number(loss) for loss in values["losses"]),
        "step_peak_bytes": tuple(values["step_peak_bytes"]),
        "step_seconds": tuple(values["step_seconds"]),
        "memory": MemoryReport(**_values(MemoryReport, values["memory"]), enforced_by=answer["enforced_by"]),
        "seconds_by_stage": {stage: stages[stage] for stage in STAGES},
        "judgements": tuple(
            JudgedStep(judgement["step"], _number(judgement["loss"], "inf")) for judgement in values["judgements"]
        ),
        "memory_columns": {name: tuple(column) for name, column in values["memory_columns"].items()},
    }
    return TrainReport(**{**values, **converted})


def evaluation(answer: Mapping[str, Any]) -> Evaluation:
    """Returns the core's evaluation as a record."""
    values = _values(Evaluation, answer)
    means = {"loss": _number(values["loss"]), "accuracy": _number(values["accuracy"])}
    return Evaluation(**{**values, **means, "perplexity": _number(values["perplexity"], "inf")})


def _values(report: type, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the core's values by the names of the report's fields."""
    return {name: answer[name] for name in _stored(report)}


def _number(value: float | None, otherwise: str = "nan") -> float:
    return float(otherwise) if value is None else float(value)
