# SPDX-License-Identifier: Apache-2.0
"""What each method has learned after equal compute (tests/benchmarks/compute_units.py), by data set: a table, resumable.

    python -m tests.benchmarks.learning tests/benchmarks/learning_tiny.toml results.tsv
    python -m tests.benchmarks.learning tests/benchmarks/learning_tiny.toml results.tsv --table

For each data set and method: each rate with one seed and a share of the compute, judged on the validation rows; while the best rate
is at an edge, one more beyond it (two at most); then all seeds at the best rate, with all of the compute, judged on the test rows.
Each run appends one line to the TSV file as it ends, and what stands there is not run again: end it at any time, start it again, or
start a second one for other data sets (--data).

Steps are the reference's (bespoke.reference.train), so neither gate nor early stopping comes between the methods and the table. Of
a task, what is judged is what answers: the adapter is imported into a PersonalModel, which `evaluate`s it; of text, the loss.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import os
import tempfile
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file
from tests.benchmarks.compute_units import step_units
from tests.benchmarks.learning_data import Data, Part, load, model_folder
from tests.benchmarks.learning_table import COLUMNS, best_rate, beyond, read_runs, table
from tests.conftest import REPOSITORY, data_place

from bespoke import Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import Bundle, open_bundle
from bespoke.data.encode import ExampleEncoder
from bespoke.data.text import Tokenizer
from bespoke.reference import graph_function
from bespoke.reference.evaluate import evaluate
from bespoke.reference.exported import peft_key
from bespoke.reference.train import RunState, train

CACHE = REPOSITORY / ".cache" / "learning"
POINTS = 4  # of a curve, at equal distances
MORE_RATES = 2  # beyond the edges of the grid, at most
CONTEXTS = 4  # of a training row: when it is asked, the longest prompt is read whole, with each label
Adapter = Mapping[str, np.ndarray]


class Subject:
    """A data set with a method: what is needed to run it at any rate."""

    def __init__(self, config: dict[str, Any], data_name: str, method_name: str, results: Path) -> None:
        self.data_name, self.method_name, self.results = data_name, method_name, results
        self.config, self.settings, self.method = config, config["data"][data_name], config["methods"][method_name]
        self.data: Data = load(data_name, data_place(), *(self.settings[part] for part in ("train", "valid", "test")))
        self.model, self.recipe = model_folder(
            self.settings["model"], config.get("pretraining_steps", 400), data_place(), CACHE
        )
        self.bundle_folder = self.built()
        length = self.settings["length"]
        encoder = ExampleEncoder(Tokenizer.open(self.model / "tokenizer.json"), None, "assistant", length)
        self.rows = {
            part: [row for example in getattr(self.data, part).examples for row in encoder.encode(example).rows]
            for part in ("train", "valid", "test")
        }
        with open_bundle(self.bundle_folder) as bundle:
            self.units_a_step = step_units(bundle, self.optimizer, self.rows["train"][0])

    @property
    def optimizer(self) -> str:
        return str(self.method.get("optimizer", self.method_name))

    def built(self) -> Path:
        """The bundle, built where it is not there: its name says all that it is made of."""
        context = CONTEXTS * self.settings["length"]
        made_of = [str(self.model), self.settings["length"], context, self.method]
        folder = CACHE / f"{self.method_name}-{hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:12]}.bundle"
        if not folder.exists():
            training = Training(sequence_lengths=(self.settings["length"],), steps=1, general_share=0.0)
            Personalizer(
                self.model, {self.optimizer: self.method.get("options", {})}, "torch", lora=Lora(**self.method.get("lora", {})),
                training=training, context=context, data=None,
            ).build(folder)  # fmt: skip
        return folder

    def line(self, phase: str, rate: float | None, seed: int | None, **found: Any) -> dict[str, Any]:
        return {"data": self.data_name, "method": self.method_name, "phase": phase, "rate": rate, "seed": seed, **found}

    def run(self, phase: str, rate: float, seed: int) -> dict[str, Any]:
        """Trains from the bundle's adapter and judges; phase "search" or "test"."""
        began = time.process_time()
        share = self.config["search_share"] if phase == "search" else 1.0
        steps = max(1, int(self.config["units"] * share / self.units_a_step))
        with open_bundle(self.bundle_folder) as bundle:
            settings = bundle.method(self.optimizer).training.model_copy(update={"learning_rate": rate, "steps": steps})
            adapter: Adapter = bundle.initial_adapter()
            state, curve = RunState(adapter), []
            for point in range(1, POINTS + 1):
                until = steps * point // POINTS
                if until > state.cursor.step:
                    trained = train(
                        bundle, self.optimizer, state, user_rows=self.rows["train"], seed=seed, settings=settings,
                        steps=until - state.cursor.step,
                    )  # fmt: skip
                    state, adapter = trained.state, trained.adapter
                curve.append((round(until * self.units_a_step), self.loss(bundle, "valid", adapter)))
            found = self.judged(bundle, "valid" if phase == "search" else "test", adapter)
        return self.line(
            phase, rate, seed, steps=steps, units=round(steps * self.units_a_step), rows=len(self.rows["train"]),
            curve=curve, seconds=time.process_time() - began, **found,
        )  # fmt: skip

    def zero_shot(self) -> dict[str, Any]:
        with open_bundle(self.bundle_folder) as bundle:
            found = self.judged(bundle, "test", bundle.initial_adapter())
        return self.line("zero-shot", None, None, steps=0, units=0, recipe=self.recipe, **found)

    def loss(self, bundle: Bundle, part: str, adapter: Adapter) -> float:
        found = evaluate(bundle, self.rows[part], adapter, method=self.optimizer)
        assert found is not None
        return found.loss

    def judged(self, bundle: Bundle, name: str, adapter: Adapter) -> dict[str, Any]:
        part: Part = getattr(self.data, name)
        found: dict[str, Any] = {"loss": self.loss(bundle, name, adapter), "judged": len(part.examples)}
        if part.task is not None and math.isfinite(found["loss"]):
            report = answered(self.bundle_folder, adapter, part, found["loss"])
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


def answered(bundle: Path, adapter: Adapter, part: Part, loss: float) -> Any:
    """The report of a PersonalModel with this adapter, which has this loss."""
    with tempfile.TemporaryDirectory() as place, PersonalModel.open(bundle, Path(place) / "state", runtime="torch") as model:
        folder = model.export_adapter(Path(place) / "adapter", base=True)
        with open_bundle(bundle) as opened:
            whole = {**opened.initial_adapter(), **adapter}  # of a method that trains one of A and B
            decoder_path = opened.manifest.model.config.decoder_path
        tensors = {peft_key(name, decoder_path): np.ascontiguousarray(array) for name, array in whole.items()}
        with safe_open(folder / "adapter_model.safetensors", "numpy") as file:
            metadata = file.metadata()  # the base that it belongs to
        save_file(tensors, folder / "adapter_model.safetensors", metadata)
        model.import_adapter(folder)
        seen = model.evaluate(part.examples).loss
        assert math.isclose(seen, loss, rel_tol=1e-3), f"what answers has a loss of {seen}, what was trained {loss}"
        return model.evaluate(part.task)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("config", type=Path, help="TOML: see tests/benchmarks/learning_tiny.toml")
    parser.add_argument("results", type=Path, help="TSV: made where there is none, else continued")
    parser.add_argument("--data", action="append", help="this data set alone; may be repeated")
    parser.add_argument("--table", action="store_true", help="run nothing")
    given = parser.parse_args()
    config = tomllib.loads(given.config.read_text(encoding="utf-8"))
    CACHE.mkdir(parents=True, exist_ok=True)
    # Reading the graphs takes most of the time of a short run, and each call of `train` and `evaluate` does it again.
    graph_function.load_program = functools.lru_cache(maxsize=None)(graph_function.load_program)
    if not given.results.exists():
        given.results.write_text("\t".join(COLUMNS) + "\n", encoding="utf-8")
    if not given.table:
        for data_name in given.data or config["data"]:
            for method_name in config["data"][data_name].get("methods", config["methods"]):
                complete(config, data_name, method_name, given.results)
    print(table(read_runs(given.results)))


def complete(config: dict[str, Any], data_name: str, method_name: str, results: Path) -> None:
    """Runs what is missing of one data set and method."""
    subject = Subject(config, data_name, method_name, results)

    def of(phase: str) -> list[dict[str, Any]]:
        return [run for run in read_runs(results) if (run["data"], run["method"], run["phase"]) == (data_name, method_name, phase)]

    def there(phase: str, rate: float, seed: int) -> bool:
        return any(math.isclose(run["rate"], rate) and run["seed"] == seed for run in of(phase))

    if not any(run["phase"] == "zero-shot" and run["data"] == data_name for run in read_runs(results)):
        subject.append(subject.zero_shot())
    rates = [float(rate) for rate in subject.method["rates"]]
    for _ in range(MORE_RATES + 1):
        for rate in rates:
            if not there("search", rate, config["search_seed"]):
                subject.append(subject.run("search", rate, config["search_seed"]))
        more = beyond(rates, best_rate(of("search")))
        if more is None or len(rates) == len(subject.method["rates"]) + MORE_RATES:
            break
        rates.append(more)
    rate = best_rate(of("search"))
    for seed in config["seeds"]:
        if not there("test", rate, seed):
            subject.append(subject.run("test", rate, seed))


if __name__ == "__main__":
    main()
