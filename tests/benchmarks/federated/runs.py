# SPDX-License-Identifier: Apache-2.0
"""Runs of the simulation, each kept as a line of measured/runs.jsonl under its settings, so a benchmark that was stopped goes on.

Delete the file to measure again where a change makes it outdated.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.benchmarks.federated.intents import world
from tests.benchmarks.federated.parties import Judge, Party, Place
from tests.benchmarks.federated.rounds import Run, Simulation

__all__ = ["MEASURED", "Result", "keep", "kept_lines", "kept_result", "result"]

MEASURED = Path(__file__).parent / "measured"
LOOKS = 4  # times that a run is judged on its way, and once at its end
FAR = 1e3  # norm of an adapter that is lost


@dataclass(frozen=True)
class Result:
    """loss and accuracy on test sentences at the end, and [round, loss, accuracy] on the way.

    seen, stopped: shares that a guard saw in each round of its trial, and whether it stopped guidance then
    """

    run: Run
    loss: float
    accuracy: float
    curve: list[list[float]]
    seen: list[list[float]]
    stopped: bool
    seconds: float


def result(run: Run, place: Place, data_folder: Path) -> Result:
    """What the run gives, from the file if it was made before."""
    made = kept_result(run)
    if made is None:
        made = _result(run, place, data_folder)
        keep("runs.jsonl", asdict(made))
    return made


def kept_result(run: Run) -> Result | None:
    for line in kept_lines("runs.jsonl"):
        if Run(**line["run"]) == run:
            return Result(**{**line, "run": run})
    return None


def _result(run: Run, place: Place, data_folder: Path) -> Result:
    began = time.monotonic()
    world_ = world(place.model, data_folder, run.seed, run.public)
    place = replace(place, probe=run.method == "probe")
    curve = []
    with Party(place, "zgr") as devices, Party(place, "mesp") as cloud:
        judge = Judge(place, cloud.shapes)
        simulation = Simulation(run, world_, devices, cloud, place)
        simulation.start()
        for number in range(run.rounds + 1):
            if number % max(1, run.rounds // LOOKS) == 0 or number == run.rounds:
                loss, accuracy = judge(simulation.holder.adapter(), world_.test)
                curve.append([number, round(loss, 4), round(accuracy, 4)])
                print(run.method, *curve[-1], flush=True)
                if not math.isfinite(loss):
                    break
            if number < run.rounds:
                simulation.round(number)
    loss, accuracy = curve[-1][1:]
    seen = [[round(number, 4) for number in both] for both in simulation.seen]
    return Result(
        run,
        loss,
        accuracy,
        curve,
        seen,
        bool(simulation.guard and simulation.guard.stopped),
        round(time.monotonic() - began, 1),
    )


def keep(name: str, *values: Any) -> None:
    MEASURED.mkdir(exist_ok=True)
    with (MEASURED / name).open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(value) + "\n" for value in values))


def kept_lines(name: str) -> Sequence[Any]:
    file = MEASURED / name
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
