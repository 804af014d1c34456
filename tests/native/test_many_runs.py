# SPDX-License-Identifier: Apache-2.0
"""A user's model over many nights: run after run starts, ends and is judged, and a stop is heard at the next instruction."""

from __future__ import annotations

import ctypes as c
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from bespoke.core import library
from bespoke.core.torch_engine import TorchEngine
from bespoke.errors import Cancelled
from tests.native.core_lab import STEPS, tiny_core_bundle
from tests.unit.personal_model.tiny import numbers

__all__ = ["tiny_core_bundle"]

OPEN, JUDGE, STEP, COMMIT, DECODE = range(5)
RUNS = 8
KEPT = 4  # after so many runs, three versions are kept and older ones were deleted
MORE_ROWS = 64 << 10  # bytes of the database, for what is kept of each run
Progress = Callable[[Any], int]


class Model:
    """An open model, by the library alone. `engine`: of Python; None: the core's own."""

    def __init__(self, bundle: Path, state: Path, engine: TorchEngine | None = None) -> None:
        self.core, self.model, self.engine = library.load(), c.c_void_p(), engine
        options = library.struct(
            library.COptions, memory_mb=-1.0, threads=1, engine=None if engine is None else c.addressof(engine.table)
        )
        place = library.struct(library.CBundle, path=str(bundle))
        self.core.call("bespoke_open", place, library.text(str(state)), options, None, c.byref(self.model))

    def __enter__(self) -> Self:
        for index in range(12):
            example = library.struct(library.CExample, json=json.dumps(numbers(index)), id=f"number-{index}")
            self.core.ask("bespoke_add_example", self.model, example, None)
        return self

    def __exit__(self, *_: object) -> None:
        self.core.plain("bespoke_release", self.model)

    def train(self, method: str, progress: Progress, cancel: Any = None) -> dict[str, Any]:
        report: dict[str, Any] = self.core.ask(
            "bespoke_train", self.model, library.struct(library.CTraining, method=method), call_of(progress, cancel)
        )
        return report


def call_of(progress: Progress, cancel: Any = None) -> Any:
    told = library.OnProgress(lambda _, found: progress(found.contents))
    return library.struct(library.CCall, progress=told, cancel=cancel)


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


@pytest.mark.parametrize("method", ["mesp", "mezo"])
def test_each_of_eight_runs_starts_ends_and_is_judged_and_nothing_piles_up(
    tiny_core_bundle: Path, tmp_path: Path, method: str
) -> None:
    disk, memory, runs = [], [], set()
    for _ in range(RUNS):
        seen: list[tuple[int, int, int]] = []
        footprint: list[int] = []

        def progress(told: Any, seen: Any = seen, footprint: Any = footprint) -> int:
            seen.append((told.phase, told.step, told.steps))
            footprint.append(told.footprint_bytes)
            return 0

        with Model(tiny_core_bundle, tmp_path / "state") as model:
            report = model.train(method, progress)
            assert model.core.ask("bespoke_current_run", model.model) is None
        assert [step for phase, step, _ in seen if phase == STEP] == list(range(1, STEPS + 1))
        assert {steps for phase, _, steps in seen if phase == STEP} == {STEPS}
        assert report["stopped_because"] == "finished"
        assert report["steps"] == report["total_steps"] == STEPS
        assert report["accepted"] is not None
        runs.add(report["run"])
        disk.append(bytes_of(tmp_path / "state"))
        memory.append(max(footprint))
    print(f"\n{method}: state of {disk} bytes, at most {memory} bytes of memory")
    assert len(runs) == RUNS
    assert max(disk[KEPT:]) <= max(disk[:KEPT]) + MORE_ROWS
    assert max(memory[KEPT:]) <= max(memory[:KEPT]) + (1 << 20)


class CountingEngine(TorchEngine):
    """Counts the programs that it runs, and may be told to do something in the middle of one."""

    def __init__(self) -> None:
        self.runs = 0
        self.during: Callable[[], None] | None = None
        super().__init__()

    def run(self, *arguments: Any) -> None:
        self.runs += 1
        if self.during is not None:
            self.during()
        super().run(*arguments)


@pytest.mark.parametrize("phase", [OPEN, JUDGE, STEP, COMMIT])
def test_a_stop_from_progress_is_heard_before_the_next_instruction(
    tiny_core_bundle: Path, tmp_path: Path, phase: int
) -> None:
    engine = CountingEngine()
    at_stop: list[int] = []

    def progress(told: Any) -> int:
        if told.phase == phase:
            at_stop.append(engine.runs)
        return int(told.phase == phase)

    with Model(tiny_core_bundle, tmp_path / "state", engine) as model:
        report = model.train("mesp", progress)
        assert report["stopped_because"] == "stop_requested"
        assert at_stop == [engine.runs], "one progress, and no program after it"
        assert model.train("mesp", lambda _: 0)["stopped_because"] == "finished"


def test_a_stop_during_an_instruction_is_heard_when_it_ends(tiny_core_bundle: Path, tmp_path: Path) -> None:
    """At programs from the first to one of a late step, and at the first one that judges."""
    engine = CountingEngine()
    during_phases: set[int] = set()
    with Model(tiny_core_bundle, tmp_path / "state", engine) as model:
        for program in (1, 2, 20, 60, 90, 150, None):
            cancel = model.core.plain("bespoke_cancel_new")
            begun, at_stop = engine.runs, list[int]()
            phase: list[int] = []

            def progress(told: Any, phase: Any = phase) -> int:
                phase.append(told.phase)
                return 0

            def during(
                cancel: Any = cancel,
                phase: Any = phase,
                at_stop: Any = at_stop,
                begun: int = begun,
                program: Any = program,
            ) -> None:
                if not at_stop and (phase[-1] == JUDGE if program is None else engine.runs == begun + program):
                    during_phases.add(phase[-1])
                    at_stop.append(engine.runs)
                    model.core.plain("bespoke_cancel_set", cancel)

            engine.during = during
            report = model.train("mesp", progress, cancel)
            engine.during = None
            model.core.plain("bespoke_cancel_free", cancel)
            assert report["stopped_because"] == "stop_requested"
            assert at_stop == [engine.runs], "a program was run after the stop"
        assert {OPEN, JUDGE, COMMIT} <= during_phases  # a step follows the opening, or the commit of the one before
        assert model.train("mesp", lambda _: 0)["stopped_because"] == "finished"


def test_a_stop_of_an_answer_is_heard_at_once_and_the_token_can_be_asked_for_again(
    tiny_core_bundle: Path, tmp_path: Path
) -> None:
    engine = CountingEngine()
    at_stop: list[int] = []

    def progress(told: Any) -> int:
        if told.phase == DECODE:
            at_stop.append(engine.runs)
        return int(told.phase == DECODE)

    with Model(tiny_core_bundle, tmp_path / "state", engine) as model:
        session, piece = c.c_void_p(), c.POINTER(library.CPiece)()
        generation = library.struct(library.CGeneration, max_tokens=2)
        model.core.call("bespoke_session_open", model.model, generation, c.byref(session))
        try:
            model.core.call("bespoke_session_feed", session, library.text("[1, 2, 3]"))
            with pytest.raises(Cancelled):
                model.core.call("bespoke_session_next", session, call_of(progress), c.byref(piece))
            assert at_stop == [engine.runs]
            assert not piece
            model.core.call("bespoke_session_next", session, None, c.byref(piece))
            assert piece.contents.tokens == 1
        finally:
            model.core.plain("bespoke_session_close", session)
