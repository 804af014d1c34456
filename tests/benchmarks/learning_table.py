# SPDX-License-Identifier: Apache-2.0
"""Runs of tests/benchmarks/learning.py as they stand in its TSV file, the rate that they speak for, and the tables they make."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tests.benchmarks.figures import Cell, markdown

__all__ = ["COLUMNS", "at_taken_rate", "best_rates", "beyond", "points", "read_runs", "settings", "table"]

Run = dict[str, Any]

COLUMNS = (
    "data",
    "method",
    "phase",
    "rate",
    "seed",
    "steps",
    "units",
    "rows",
    "judged",
    "loss",
    "accuracy",
    "macro_f1",
    "chance",
    "majority",
    "guess_loss",
    "seconds",
    "accepted",
    "curve",
    "recipe",
)
HEADER = (
    "method",
    "rate",
    "at the edge of the rates",
    "seeds",
    "steps",
    "passes of a row",
    "accuracy",
    "macro F1",
    "loss, nats a token",
    "training loss on the way",
)


def read_runs(path: Path) -> list[Run]:
    """Cells are JSON; an empty one is None. A line that was cut off as it was written does not count."""
    head, *lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if tuple(head.rstrip("\n").split("\t")) != COLUMNS:
        raise SystemExit(f"{path}: other columns than this program writes; give another file")
    runs = []
    for line in lines:
        cells = line.rstrip("\n").split("\t")
        if line.endswith("\n") and len(cells) == len(COLUMNS):
            runs.append({name: json.loads(cell) if cell else None for name, cell in zip(COLUMNS, cells, strict=True)})
    return runs


def best_rates(runs: Sequence[Run]) -> list[float]:
    """The best first, by the validation loss, which tells apart what accuracies near chance do not. One that is no number is the
    worst."""

    def loss(run: Run) -> float:
        return run["loss"] if run["loss"] is not None and math.isfinite(run["loss"]) else math.inf

    return [float(run["rate"]) for run in sorted(runs, key=loss)]


def beyond(rates: Sequence[float], best: float) -> float | None:
    """One more rate, as far from the best as its neighbour, where the best is at an edge."""
    rates = sorted(rates)
    if len(rates) < 2 or best not in (rates[0], rates[-1]):
        return None
    return rates[0] ** 2 / rates[1] if best == rates[0] else rates[-1] ** 2 / rates[-2]


def settings(config: dict[str, Any]) -> str:
    """Markdown: what each method is, of the configuration's words."""
    rows: list[list[Cell]] = []
    for name, method in config["methods"].items():
        options, lora = method["options"], method["lora"]
        rates = [f"{rate:g}" for rate in sorted(map(float, method["rates"]))]
        rows.append(
            [
                name,
                method.get("optimizer", name),
                "A and B" if lora.get("train", "both") == "both" else "B",
                lora["rank"],
                options.get("queries", 1) if "epsilon" in options else None,
                options["batch_size"],
                options.get("epsilon"),
                ", ".join(rates),
            ]
        )
    head = (
        "method",
        "optimizer",
        "trained",
        "rank",
        "queries",
        "rows a query",
        "epsilon",
        "rates, where a data set has no others",
    )
    seeds, share = len(config["seeds"]), config["search_share"]
    return f"{seeds} seeds; a rate is searched with {share:g} of the passes.\n\n{markdown(head, rows)}"


def at_taken_rate(runs: Sequence[Run], method: str) -> list[Run]:
    """The runs of all seeds at the rate that a data set's runs speak for: the last one, since a refused one is passed over."""
    of_method = [run for run in runs if run["method"] == method and run["phase"] == "test"]
    return [run for run in of_method if run["rate"] == of_method[-1]["rate"]]


def table(runs: Sequence[Run]) -> str:
    """Markdown: a table for each data set that something was tested on, with what it is to be held against."""
    parts = []
    for data in dict.fromkeys(run["data"] for run in runs if run["phase"] == "test"):
        own = [run for run in runs if run["data"] == data]
        zero = next(run for run in own if run["phase"] == "zero-shot")
        rows = [_zero_row(zero)]
        for method in dict.fromkeys(run["method"] for run in own if run["phase"] == "test"):
            rows.append(_row(method, own))
        trained = max((run["rows"] or 0 for run in own), default=0)
        note = f"{zero['recipe']}; {trained} rows to train on, {zero['judged']} to test on"
        if zero["chance"] is not None:
            note += f"; chance {zero['chance']:.1%}, always the commonest label {zero['majority']:.1%}"
            error = math.sqrt(zero["chance"] * (1 - zero["chance"]) / zero["judged"])
            note += f"; standard error of an accuracy at chance, from the draw of test rows, {error:.1%}"
        if zero["guess_loss"] is not None:
            note += f"; loss of a guess among the labels {zero['guess_loss']:.3f}"
        parts.append(f"{data}: {note}.\n\n{markdown(HEADER, rows)}")
    return "\n\n".join(parts)


def _zero_row(run: Run) -> list[Cell]:
    shares = [None if run[name] is None else f"{run[name]:.1%}" for name in ("accuracy", "macro_f1")]
    return ["zero-shot", None, None, None, 0, 0, *shares, f"{run['loss']:.3f}", None]


def _row(method: str, runs: Sequence[Run]) -> list[Cell]:
    seeds = at_taken_rate(runs, method)
    rate = seeds[0]["rate"]
    own = [run for run in runs if run["method"] == method]
    searched, tested = ({run["rate"] for run in own if run["phase"] == phase} for phase in ("search", "test"))
    refused = sorted(tested - {rate})
    edge = "yes" if rate in (min(searched), max(searched)) else "no"
    said = f"{rate:.3g}" + "".join(f", not {other:.3g}" for other in refused)
    return [
        method,
        said,
        edge,
        len(seeds),
        seeds[0]["steps"],
        seeds[0]["units"],
        _spread([run["accuracy"] for run in seeds], share=True),
        _spread([run["macro_f1"] for run in seeds], share=True),
        _spread([run["loss"] for run in seeds]),
        _curve(seeds),
    ]


def _spread(values: Sequence[float | None], share: bool = False) -> str | None:
    """Mean and sample standard deviation over seeds."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    times, digits, unit = (100, 1, "%") if share else (1, 3, "")
    mean = f"{fmean(there) * times:.{digits}f}{unit}"
    few = f" ({len(there)} of {len(values)})" if len(there) < len(values) else ""  # the others diverged
    return (f"{mean} ± {stdev(there) * times:.{digits}f}{unit}" if len(there) > 1 else mean) + few


def points(seeds: Sequence[Run]) -> list[tuple[float, float, float]]:
    """For each part of a run: passes of a row up to its middle, mean loss over the seeds, sample standard deviation (NaN
    where it is not known)."""
    curve = []
    before = 0
    for of_part in zip(*(run["curve"] for run in seeds), strict=True):
        losses = [loss for _, loss in of_part]
        until = of_part[0][0]
        known = len(losses) > 1 and all(map(math.isfinite, losses))
        curve.append(((before + until) / 2, fmean(losses), stdev(losses) if known else math.nan))
        before = until
    return curve


def _curve(seeds: Sequence[Run]) -> str:
    return ", ".join(
        f"{mean:.2f}" + ("" if math.isnan(spread) else f" ± {spread:.2f}") for _, mean, spread in points(seeds)
    )
