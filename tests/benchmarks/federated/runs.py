# SPDX-License-Identifier: Apache-2.0
"""Runs of the simulation, each kept as a line of measured/runs.jsonl under its settings, so a benchmark that was stopped goes on.

Delete the file to measure again where a change makes it outdated.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.benchmarks.federated.intents import world
from tests.benchmarks.federated.parties import Judge, Party, Place
from tests.benchmarks.federated.protocol import federation
from tests.benchmarks.federated.rounds import Run, Simulation

__all__ = ["MEASURED", "PROTOCOL", "Result", "keep", "kept_lines", "kept_result", "result", "result_through_protocol"]

MEASURED = Path(__file__).parent / "measured"
SIMULATED, PROTOCOL = "runs.jsonl", "protocol.jsonl"
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
        keep(SIMULATED, asdict(made))
    return made


def result_through_protocol(run: Run, place: Place, data_folder: Path) -> Result:
    """The same with a server in between."""
    made = kept_result(run, PROTOCOL)
    if made is None:
        made = _through_protocol(run, place, data_folder)
        keep(PROTOCOL, asdict(made))
    return made


def kept_result(run: Run, name: str = SIMULATED) -> Result | None:
    for line in kept_lines(name):
        if Run(**line["run"]) == run:
            return Result(**{**line, "run": run})
    return None


def _result(run: Run, place: Place, data_folder: Path) -> Result:
    began = time.monotonic()
    world_ = world(place.model, data_folder, run.seed, run.public)
    place = replace(place, probe=run.method == "probe")
    with Party(place, "zgr") as devices, Party(place, "mesp") as cloud:
        simulation = Simulation(run, world_, devices, cloud, place)
        simulation.start()
        judge = Judge(place, cloud.shapes)

        def look() -> tuple[float, float]:
            return judge(simulation.holder.adapter(), world_.test)

        curve = _curve(run, look, simulation.round)
    seen = [[round(number, 4) for number in both] for both in simulation.seen]
    return _ended(run, curve, began, seen, bool(simulation.guard and simulation.guard.stopped))


def _through_protocol(run: Run, place: Place, data_folder: Path) -> Result:
    began = time.monotonic()
    world_ = world(place.model, data_folder, run.seed, run.public)
    place = replace(place, probe=run.method == "probe", folder=place.folder / run.method)
    place.folder.mkdir()
    with (
        Party(place, "mesp" if run.method == "projections" else "zgr") as party,
        federation(run, world_, party, place) as together,
    ):
        judge = Judge(place, party.shapes)
        curve = _curve(run, lambda: judge(party.adapter(), world_.test), lambda _: together.next_round())
    return _ended(run, curve, began, [], False)


def _curve(run: Run, look: Callable[[], tuple[float, float]], step: Callable[[int], object]) -> list[list[float]]:
    """[round, loss, accuracy] at some rounds on the way."""
    curve: list[list[float]] = []
    for number in range(run.rounds + 1):
        if number % max(1, run.rounds // LOOKS) == 0 or number == run.rounds:
            loss, accuracy = look()
            curve.append([number, round(loss, 4), round(accuracy, 4)])
            print(run.method, *curve[-1], flush=True)
            if not math.isfinite(loss):
                break
        if number < run.rounds:
            step(number)
    return curve


def _ended(run: Run, curve: list[list[float]], began: float, seen: list[list[float]], stopped: bool) -> Result:
    loss, accuracy = curve[-1][1:]
    return Result(run, loss, accuracy, curve, seen, stopped, round(time.monotonic() - began, 1))


def keep(name: str, *values: Any) -> None:
    MEASURED.mkdir(exist_ok=True)
    with (MEASURED / name).open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(value) + "\n" for value in values))


def kept_lines(name: str) -> Sequence[Any]:
    file = MEASURED / name
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
