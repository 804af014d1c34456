# SPDX-License-Identifier: Apache-2.0
"""A child process: its steps, its stops, its limit, and every way in which it can end."""

from __future__ import annotations

import gc
import itertools
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bespoke import errors
from bespoke.core import child, process, run
from bespoke.core.process import Child
from bespoke.errors import BespokeError, BudgetExceeded, DataError, MissingDependency
from bespoke.rules.report import Progress

pytestmark = pytest.mark.usefixtures("fake_core")
MB = 10**6


@pytest.fixture(autouse=True)
def interrupts_are_heard() -> Iterator[None]:
    """A shell starts background processes with SIGINT ignored, and Python leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ask(bundle: str, **more: object) -> dict[str, object]:
    return {"verb": "train", "bundle": bundle, **more}


def test_steps_are_reported_and_the_report_is_what_the_core_said() -> None:
    told: list[Progress] = []
    report = run(ask("steps:5", run_steps=5), on_progress=told.append)
    assert [(one.phase, one.step) for one in told] == [
        (phase, step) for step in range(1, 6) for phase in ("step", "commit")
    ]
    losses = [one.loss for one in told]
    assert losses[2:6] == [0.5, None, 1 / 3, None]
    assert losses[6] is not None
    assert math.isnan(losses[6])  # JSON has no NaN
    assert report["asked"] == {"verb": "train", "bundle": "steps:5", "run_steps": 5}
    assert report["enforced_by"] == "none"


def test_ten_thousand_steps_and_foreign_lines_do_not_confuse_it() -> None:
    steps: list[int] = []
    run(ask("steps:10000"), on_progress=lambda progress: steps.append(progress.step))
    assert steps[::2] == steps[1::2] == list(range(1, 10001))
    assert run(ask("noise"))["stopped"] is False


def test_a_stop_ends_it_with_a_report() -> None:
    answers = itertools.chain([False, False], itertools.repeat(True))
    began = time.monotonic()
    assert run(ask("until_stopped"), stop=lambda: next(answers))["stopped"] is True
    assert time.monotonic() - began < child.STOP_SECONDS


def test_a_stop_that_comes_before_the_core_listens_is_not_lost() -> None:
    assert run(ask("slow_start"), stop=lambda: True)["stopped"] is True


def test_an_error_in_a_callback_stops_the_child_and_is_raised() -> None:
    def wrong(progress: Progress) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(ask("until_stopped"), on_progress=wrong)


def interrupt(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_an_interrupt_stops_the_child() -> None:
    with pytest.raises(KeyboardInterrupt):
        run(ask("until_stopped"), on_progress=interrupt)


def test_a_second_interrupt_does_not_wait_for_a_child_that_does_not_end() -> None:
    again = threading.Timer(0.5, interrupt)

    def twice(progress: Progress) -> None:
        again.start()
        interrupt()

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(ask("deaf"), on_progress=twice)
    again.join()
    assert time.monotonic() - began < child.STOP_SECONDS / 2


@pytest.mark.parametrize("kind", ["StateLocked", "BudgetExceeded", "DiskFull", "GoldenMismatch", "PlanError"])
def test_an_error_of_the_core_is_the_same_error_here(kind: str) -> None:
    with pytest.raises(getattr(errors, kind)) as raised:
        run(ask(f"error:{kind}"))
    assert type(raised.value).__name__ == kind
    assert str(raised.value) == "state: got another trainer; expected none. Wait."


@pytest.mark.parametrize("kind", ["NoSuchError", "annotations", "Sequence"])
def test_an_unknown_kind_of_error_is_an_error_still(kind: str) -> None:
    with pytest.raises(BespokeError) as raised:
        run(ask(f"error:{kind}"))
    assert type(raised.value) is BespokeError


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL])
def test_a_crash_names_its_signal_and_says_that_the_state_is_whole(number: int) -> None:
    with pytest.raises(BespokeError) as raised:
        run(ask(f"crash:{int(number)}"), limit_bytes=200 * MB)
    assert type(raised.value) is BespokeError
    assert signal.Signals(number).name in raised.value.got
    assert "something terrible" in raised.value.got
    assert "last commit" in raised.value.next_step


def test_an_end_without_a_report_is_an_error() -> None:
    with pytest.raises(BespokeError, match="exit status 3 without a report"):
        run(ask("silent:3"))
    with pytest.raises(BespokeError, match="exit status 0 without a report"):
        run(ask("silent:0"))


def test_the_system_ends_what_goes_over_the_limit() -> None:
    assert run(ask("eat:20"), limit_bytes=60 * MB)["enforced_by"] in ("cgroup1", "cgroup2", "rlimit_data", "none")
    kind = run(ask("eat:0"), limit_bytes=60 * MB)["enforced_by"]
    if not str(kind).startswith("cgroup"):
        pytest.skip(f"no cgroup can be made here ({kind})")
    with pytest.raises(BudgetExceeded) as raised:
        run(ask("eat:200"), limit_bytes=60 * MB)
    assert "60.0 MB" in raised.value.expected
    assert str(kind) in raised.value.got
    assert "intact" in raised.value.next_step


def test_without_cgroups_allocations_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    from bespoke.core import limit

    monkeypatch.setattr(limit, "make_child_group", lambda limit_bytes: None)
    assert run(ask("eat:20"), limit_bytes=60 * MB)["enforced_by"] == "rlimit_data"
    with pytest.raises(BespokeError, match="MemoryError"):  # the core itself tells BudgetExceeded
        run(ask("eat:400"), limit_bytes=60 * MB)


def test_a_bundle_is_read_whole_before_the_core_maps_it(tmp_path: Path) -> None:
    from bespoke.core.page_cache import read_through

    (tmp_path / "weights").mkdir()
    file = tmp_path / "weights" / "block.safetensors"
    file.write_bytes(os.urandom(5_000_000))
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert read_through(tmp_path) in (0, pytest.approx(5_000_000, rel=0.3))  # 0: a file system without a disk
    assert read_through(tmp_path) == 0  # it is in the page cache now
    assert read_through(tmp_path / "nosuch") == 0


def test_no_cgroup_is_left_behind() -> None:
    from bespoke.system import limits

    run(ask("eat:1"), limit_bytes=60 * MB)
    for kind in ("cgroup1", "cgroup2"):
        home = limits._own_cgroup(kind, Path("/proc/self"))  # type: ignore[arg-type]
        for base in () if home is None else (home, home.parent):
            assert list(base.glob(f"bespoke_limit_{os.getpid()}_*")) == []


def until(core: Child, kind: str) -> dict[str, Any]:
    """The next event of that kind. EOFError if the core's output ends before it."""
    while (event := core.hear(0.1)) is None or event["event"] != kind:
        pass
    return event


def test_the_child_outlives_the_thread_that_asked_for_it() -> None:
    """The kernel sends PR_SET_PDEATHSIG when the thread that started a process ends."""
    children: list[Child] = []

    def start() -> None:
        children.append(Child(ask("until_stopped"), None))

    for _ in range(5):
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
    time.sleep(0.3)
    for core in children:
        with core:
            until(core, "progress")
            core.tell({"do": "cancel"})
            assert until(core, "report")["report"]["stopped"] is True


def test_a_core_that_goes_silent_is_pinged_and_then_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "SILENT_SECONDS", 0.2)
    with pytest.raises(BespokeError, match="no answer to a ping"):
        run(ask("deaf"))


def test_a_core_that_reads_nothing_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "SILENT_SECONDS", 0.2)
    with Child(ask("deaf"), None) as core:
        for _ in range(3):  # the first line is the last one that it reads
            core.tell({"text": "x" * 1_000_000})
        assert core.process.wait(10) == -signal.SIGKILL


def test_a_core_that_closes_its_output_and_stays_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "END_SECONDS", 0.2)
    with pytest.raises(BespokeError, match="closed its output and does not end"):
        run(ask("mute"))


def test_a_request_that_no_line_can_hold_is_refused_before_any_of_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MAX_LINE_BYTES", 1000)
    with Child(ask("until_stopped"), None) as core:
        with pytest.raises(DataError, match="at most 1,000"):
            core.tell({"text": "x" * 1000})
        core.tell({"do": "cancel"})
        assert until(core, "report")["report"]["stopped"] is True


def test_a_fork_leaves_the_child_of_its_parent_alone() -> None:
    core = Child(ask("until_stopped"), None)
    forked = os.fork()
    if not forked:
        core.close()
        del core
        gc.collect()
        os._exit(0)
    os.waitpid(forked, 0)
    assert core.process.poll() is None
    core.close()
    assert core.process.poll() == -signal.SIGKILL


def test_the_child_dies_with_its_parent(tmp_path: Path) -> None:
    program = """
import sys
from bespoke.core import child, run
run({"verb": "train", "bundle": "deaf"}, on_progress=lambda progress: print("started", flush=True))
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "started\n"
    threads = Path(f"/proc/{parent.pid}/task").glob("*/children")
    (started,) = (int(pid) for children in threads for pid in children.read_text().split())
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while _runs(started) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(started)


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_without_a_core_the_error_names_the_reason_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BESPOKE_CORE", "/nonexistent/core")
    with pytest.raises(MissingDependency, match="no file"):
        run(ask("steps:1"))
