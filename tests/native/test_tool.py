# SPDX-License-Identifier: Apache-2.0
"""bespoke-core as a process: its lines in both directions, and what changes while it trains."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from tests.native.conftest import sanitized_core
from tests.native.core_lab import tiny_core_bundle
from tests.support.statuses import STATUS
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["tiny_core_bundle"]


@pytest.fixture
def state(tiny_core_bundle: Path, tmp_path: Path) -> Path:
    with PersonalModel.open(tiny_core_bundle, tmp_path / "state") as model:
        add_numbers(model)
    return tmp_path / "state"


class Talk:
    """One process: what was said to it, what it says, how it ended."""

    def __init__(self, program: Path, bundle: Path, state: Path, **more: Any) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.say({"verb": "train", "bundle": str(bundle), "state": str(state), "threads": 1, "memory_mb": -1, **more})

    def say(self, message: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
        self.process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def until_step(self, number: int) -> None:
        while (event := self.hear()).get("phase") != "step" or event["step"] < number:
            assert event["event"] == "progress", event

    def end(self) -> tuple[dict[str, Any], int]:
        while (event := self.hear())["event"] not in ("report", "error"):
            pass
        return event, self.process.wait()


@contextmanager
def talk(native_build: Path, bundle: Path, state: Path, **more: Any) -> Iterator[Talk]:
    one = Talk(native_build / "bespoke-core", bundle, state, **more)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.wait()
        for pipe in (one.process.stdin, one.process.stdout):
            assert pipe is not None
            pipe.close()


def test_a_line_cancels(native_build: Path, tiny_core_bundle: Path, state: Path) -> None:
    with talk(native_build, tiny_core_bundle, state, run_steps=100_000) as core:
        core.until_step(3)
        core.say({"do": "cancel"})
        event, status = core.end()
    assert event["report"]["stopped_because"] == "stop_requested"
    assert event["report"]["steps"] >= 3
    assert status == 0


def test_the_limit_changes_while_it_trains_and_what_was_done_is_committed(
    native_build: Path, tiny_core_bundle: Path, state: Path
) -> None:
    with talk(native_build, tiny_core_bundle, state, run_steps=100_000) as core:
        core.until_step(3)
        core.say({"do": "limit", "memory_mb": 1})
        event, status = core.end()
    assert event["kind"] == "BudgetExceeded"
    assert status == STATUS["BudgetExceeded"]
    with talk(native_build, tiny_core_bundle, state, most_steps=1) as core:
        event, _ = core.end()
    assert event["report"]["total_steps"] > 3


@pytest.mark.parametrize("given", [{"steps": 5}, {"settings": {"steps": 5}}], ids=["of the call", "among the settings"])
def test_steps_that_do_not_say_of_what_are_refused(
    native_build: Path, tiny_core_bundle: Path, state: Path, given: dict[str, Any]
) -> None:
    with talk(native_build, tiny_core_bundle, state, **given) as core:
        event, status = core.end()
    assert (event["kind"], event["subject"], event["got"], status) == (
        "ConfigError",
        "train.steps",
        "5",
        STATUS["ConfigError"],
    )
    assert "run_steps" in event["expected"]
    assert "most_steps" in event["expected"]


def test_lines_that_mean_nothing_change_nothing(native_build: Path, tiny_core_bundle: Path, state: Path) -> None:
    with talk(native_build, tiny_core_bundle, state, run_steps=100_000) as core:
        core.until_step(1)
        for line in (
            "",
            "{half",
            "[1]",
            {"do": "dance"},
            {"do": "limit"},
            {"do": "limit", "memory_mb": "much"},
            {"do": 7},
        ):
            core.say(line)
        core.say({"do": "pace", "share": 2})
        while (event := core.hear()).get("got") != "2.0":
            assert event["event"] == "progress" or (event["event"], event["order"]) == ("refused", None)
        core.say({"do": "cancel"})
        event, status = core.end()
    assert event["report"]["stopped_because"] == "stop_requested"
    assert status == 0


def test_every_line_is_answered(native_build: Path, tiny_core_bundle: Path, state: Path) -> None:
    """Whatever stands in it: a parent that waits for an order would wait for ever."""
    lines = (
        "",
        "{half",
        "[1]",
        "7",
        "null",
        '"text"',
        '{"do": "feed", "stop_texts": ["\\ud800"], "order": 1}',
        '{"do": 7}',
        "{}",
        '{"do": "next"}',
        '{"do": "next", "order": "x"}',
        '{"do": "next", "order": 1e300}',
        '{"do": "limit"}',
        '{"do": "limit", "memory_mb": "much"}',
        '{"do": "pace", "share": []}',
        "[" * 100_000,
        "x" * (64 << 20) + "x",
    )
    orders = (
        {"do": "dance"},
        {"do": "next"},
        {"do": "next", "session": 7},
        {"do": "next", "session": "x"},
        {"do": "open", "session": 1},
        {"do": "feed", "session": 1, "prompt": []},
        {"do": "score"},
        {"do": "classify", "prompt": 1, "answers": 2},
    )
    with talk(native_build, tiny_core_bundle, state, verb="answer") as core:
        assert core.hear()["event"] == "ready"
        for line in lines:
            core.say(line)
            event = core.hear()
            assert (event["event"], event["order"]) == ("refused", None), line[:100]
        for number, order in enumerate(orders):
            core.say({**order, "order": number})
            event = core.hear()
            assert (event["event"], event["order"]) == ("error", number), order
        core.say({"do": "ping"})
        assert core.hear() == {"event": "alive"}


def test_it_answers_a_ping_while_it_trains(native_build: Path, tiny_core_bundle: Path, state: Path) -> None:
    with talk(native_build, tiny_core_bundle, state, run_steps=100_000) as core:
        core.until_step(1)
        core.say({"do": "ping"})
        while (event := core.hear())["event"] != "alive":
            assert event["event"] == "progress"


@pytest.mark.slow
def test_nothing_is_used_after_it_was_freed_when_the_process_ends(tiny_core_bundle: Path, state: Path) -> None:
    """The thread that listens is still there when `main` returns."""
    program = sanitized_core("address,undefined", targets=["bespoke-core"]) / "bespoke-core"
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}  # the listening thread never ends and keeps its line
    for number in range(20):
        request = {
            "verb": "answer",
            "bundle": str(tiny_core_bundle),
            "state": str(state),
            "threads": 1,
            "memory_mb": -1,
        }
        given = json.dumps(request) + "\n" + '{"do": "next", "session": 1, "order": 1}\n' * (number % 3)
        done = subprocess.run([program], input=given, capture_output=True, text=True, env=environment, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
    request = {"verb": "train", "bundle": str(tiny_core_bundle), "state": str(state), "threads": 1, "memory_mb": -1}
    with subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as held:
        assert held.stdin is not None
        assert held.stderr is not None
        held.stdin.write(json.dumps({**request, "run_steps": 1}) + "\n")
        held.stdin.flush()  # and stays open: the thread waits for a line when `main` returns
        assert held.stderr.read() == ""
        assert held.wait(120) == 0


def test_a_deadline_is_kept(native_build: Path, tiny_core_bundle: Path, state: Path) -> None:
    with talk(native_build, tiny_core_bundle, state, run_steps=1_000_000, deadline_seconds=0.5) as core:
        event, _ = core.end()
    assert event["report"]["stopped_because"] == "deadline"
    assert event["report"]["accepted"] is None
