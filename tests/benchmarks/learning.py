# SPDX-License-Identifier: Apache-2.0
"""What each method has learned after equal compute (tests/benchmarks/compute_units.py), by data set: tables and curves, resumable.

    python -m tests.benchmarks.learning tests/benchmarks/learning_tiny.toml results.tsv
    python -m tests.benchmarks.learning tests/benchmarks/learning_tiny.toml results.tsv --table

For each data set and method: each rate with one seed and a share of the compute, judged on the validation rows; while the best rate
is at an edge, one more beyond it (two at most); then all seeds at the best rate, with all of the compute, judged on the test rows.
Where the gate, which looks at the rows trained on, refuses one of them, the next best rate is taken: what learns for a quarter may
diverge later. Each run appends one line to the TSV file as it ends, and what stands there is not run again: end it at any time,
start it again, or start a second one for other data sets (--data).

The device core trains, a PersonalModel each run, and judges: accuracy and loss are of what answers. All rows are for training
(`use="train"`), so a run goes to its last step; the gate looks at them then, and where it refuses, what answered before is judged.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import resource
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from tests.benchmarks.compute_units import step_units
from tests.benchmarks.figures import write_text
from tests.benchmarks.learning_data import Data, Part, load, model_folder
from tests.benchmarks.learning_picture import draw
from tests.benchmarks.learning_table import COLUMNS, best_rates, beyond, read_runs, settings, table
from tests.conftest import REPOSITORY, data_place
from tests.support.example_encoder import ExampleEncoder

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.data.text import Tokenizer

CACHE = REPOSITORY / ".cache" / "learning"
PICTURE = REPOSITORY / "docs" / "explanation" / "images" / "learning.svg"
POINTS = 5  # points of a curve, each the mean loss of a part of a run
MORE_RATES = 2  # beyond the edges of the grid, at most
CONTEXTS = 4  # context in training rows: the longest prompt is read whole, with each label


class Subject:
    """A data set with a method: what is needed to run it at any rate."""

    def __init__(self, config: dict[str, Any], data_name: str, method_name: str, results: Path) -> None:
        self.data_name, self.method_name, self.results = data_name, method_name, results
        self.config, self.settings, self.method = config, config["data"][data_name], config["methods"][method_name]
        self.model, self.recipe = model_folder(
            self.settings["model"], config.get("pretraining_steps", 400), data_place(), CACHE
        )
        self.bundle_folder = self.built()
        with tempfile.TemporaryDirectory() as state, self.opened(state) as model:
            counts = (self.settings[part] for part in ("train", "valid", "test"))
            self.data: Data = load(data_name, data_place(), *counts, chat=model.has_turns)
        tokenizer = Tokenizer.open(self.model / "tokenizer.json")
        self.encoder = ExampleEncoder(
            tokenizer, None, "assistant", self.settings["length"]
        )  # encodes examples without turns
        (row,) = self.encoder.encode({"text": "Any row: it is padded to its length."}).rows
        with read_bundle(self.bundle_folder) as bundle:
            self.units_a_step = step_units(bundle, self.optimizer, row)

    @property
    def optimizer(self) -> str:
        return str(self.method.get("optimizer", self.method_name))

    @property
    def units(self) -> int:
        """Passes of a row that a run for the table gets: the data set's own number, or that of all."""
        return int(self.settings.get("units", self.config["units"]))

    @property
    def rates(self) -> list[float]:
        """The method's, unless the data set has its own for it."""
        return [float(rate) for rate in self.settings.get("rates", {}).get(self.method_name, self.method["rates"])]

    def built(self) -> Path:
        """The bundle, built where it is not there: its name says all that it is made of."""
        context = CONTEXTS * self.settings["length"]
        made_of = [str(self.model), self.settings["length"], context, self.method]
        folder = CACHE / f"{self.method_name}-{hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]}.bundle"
        if not folder.exists():
            training = Training(sequence_lengths=(self.settings["length"],), steps=1, general_share=0.0)
            Personalizer(
                self.model,
                {self.optimizer: self.method.get("options", {})},
                ["executorch", "torch"],  # torch counts passes
                lora=Lora(**self.method.get("lora", {})),
                training=training,
                context=context,
                data=None,
            ).build(folder)
        return folder

    def line(self, phase: str, rate: float | None, seed: int | None, **found: Any) -> dict[str, Any]:
        return {"data": self.data_name, "method": self.method_name, "phase": phase, "rate": rate, "seed": seed, **found}

    def run(self, phase: str, rate: float, seed: int) -> dict[str, Any]:
        """Trains from the bundle's adapter and judges; phase "search" or "test"."""
        share = self.config["search_share"] if phase == "search" else 1.0
        steps = max(1, int(self.units * share / self.units_a_step))
        began = processor_seconds()
        with tempfile.TemporaryDirectory() as state, self.opened(state) as model:
            for example in self.data.train.examples:
                model.examples.add(example, use="train")
            report = model.train(run_steps=steps, method=self.optimizer, learning_rate=rate, seed=seed)
            found = self.judged(model, "valid" if phase == "search" else "test")
        return self.line(
            phase,
            rate,
            seed,
            steps=steps,
            units=round(steps * self.units_a_step),
            rows=len(self.data.train.examples),
            accepted=report.accepted,
            curve=self.curve(report.losses),
            seconds=processor_seconds() - began,
            **found,
        )

    def curve(self, losses: Sequence[float]) -> list[tuple[int, float]]:
        """(passes of a row so far, mean loss of the steps since the point before)."""
        ends = [len(losses) * (point + 1) // POINTS for point in range(POINTS)]
        parts = zip([0, *ends], ends, strict=False)
        return [(round(end * self.units_a_step), fmean(losses[begin:end])) for begin, end in parts if end > begin]

    def zero_shot(self) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as state, self.opened(state) as model:
            found = self.judged(model, "test")
        return self.line(
            "zero-shot", None, None, steps=0, units=0, recipe=self.recipe, guess_loss=self.guess_loss(), **found
        )

    def guess_loss(self) -> float | None:
        """The loss of who knows the labels and not the text: each label as probable, over its tokens and the end token."""
        task = self.data.test.task
        if task is None:
            return None
        rows = [row for example in task.examples(chat=False) for row in self.encoder.encode(example).rows]
        return len(task.rows) * math.log(len(task.labels)) / sum(int(np.sum(row.mask)) for row in rows)

    def opened(self, state: str) -> PersonalModel:
        return PersonalModel.open(self.bundle_folder, state, engine="executorch")

    def judged(self, model: PersonalModel, name: str) -> dict[str, Any]:
        part: Part = getattr(self.data, name)
        found: dict[str, Any] = {"loss": model.evaluate(part.examples).loss, "judged": len(part.examples)}
        if part.task is not None:
            report = model.evaluate(part.task)
            found |= {name: getattr(report, name) for name in ("accuracy", "macro_f1", "chance", "majority")}
        return found

    def append(self, line: dict[str, Any]) -> dict[str, Any]:
        """One line, written at once, so that several may append."""
        cells = ["" if line.get(name) is None else json.dumps(line[name]) for name in COLUMNS]
        with self.results.open("a", encoding="utf-8") as file:
            file.write("\t".join(cells) + "\n")
            file.flush()
            os.fsync(file.fileno())
        print({name: value for name, value in line.items() if name != "curve"}, flush=True)
        return line


def processor_seconds() -> float:
    """Processor time of this process and of those that it has waited for, the core's among them."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("config", type=Path, help="TOML: see tests/benchmarks/learning_tiny.toml")
    parser.add_argument("results", type=Path, help="TSV: made where there is none, else continued")
    parser.add_argument("--data", action="append", help="this data set alone; may be repeated")
    parser.add_argument("--table", action="store_true", help="run nothing; write the tables and the curves into docs/")
    given = parser.parse_args()
    config = tomllib.loads(given.config.read_text(encoding="utf-8"))
    CACHE.mkdir(parents=True, exist_ok=True)
    if not given.results.exists():
        given.results.write_text("\t".join(COLUMNS) + "\n", encoding="utf-8")
    if not given.table:
        for data_name in given.data or config["data"]:
            for method_name in config["data"][data_name].get("methods", config["methods"]):
                complete(config, data_name, method_name, given.results)
    runs = [run for run in read_runs(given.results) if run["data"] in (given.data or config["data"])]
    if given.table:
        write_text("learning_methods", settings(config))
        write_text("learning", table(runs))
        draw(runs, PICTURE)
    else:
        print(settings(config), table(runs), sep="\n\n")


def complete(config: dict[str, Any], data_name: str, method_name: str, results: Path) -> None:
    """Runs what is missing of one data set and method."""
    subject = Subject(config, data_name, method_name, results)

    def of(phase: str) -> list[dict[str, Any]]:
        return [
            run
            for run in read_runs(results)
            if (run["data"], run["method"], run["phase"]) == (data_name, method_name, phase)
        ]

    def there(phase: str, rate: float, seed: int) -> bool:
        return any(math.isclose(run["rate"], rate) and run["seed"] == seed for run in of(phase))

    if not any(run["phase"] == "zero-shot" and run["data"] == data_name for run in read_runs(results)):
        subject.append(subject.zero_shot())
    rates = subject.rates
    for _ in range(MORE_RATES + 1):
        for rate in rates:
            if not there("search", rate, config["search_seed"]):
                subject.append(subject.run("search", rate, config["search_seed"]))
        more = beyond(rates, best_rates(of("search"))[0])
        if more is None or len(rates) == len(subject.rates) + MORE_RATES:
            break
        rates.append(more)
    for rate in best_rates(of("search")):
        for seed in config["seeds"]:
            if not there("test", rate, seed):
                subject.append(subject.run("test", rate, seed))
        if all(run["accepted"] for run in of("test") if math.isclose(run["rate"], rate)):
            break


if __name__ == "__main__":
    main()
