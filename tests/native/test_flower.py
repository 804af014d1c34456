# SPDX-License-Identifier: Apache-2.0
"""A cloud, two edges and six devices with the real core: Flower between cloud and edges, HTTPS between edges and devices.

An edge is killed in the middle and starts again. In full the cloud is stopped too, with all of Flower. All come to one adapter, and
each number that was counted is in a step once.
"""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bespoke import FederationClient, PersonalModel, learn_together
from bespoke.errors import ServerError
from bespoke.rules.aggregation import step_of
from bespoke.rules.federation import coefficients_of
from tests.native.federation_devices import exact, joined, with_federation
from tests.support.checks import full, record_check
from tests.support.federation_edge import COMMAND, PYTHON, RunningEdge, running_edge
from tests.support.federation_key import PRIVATE
from tests.support.reading import select

__all__ = ["exact"]

EDGES, DEVICES, RATE = 2, 3, 0.05  # devices of each edge
ROUNDS = 20 if full() else 3
SECONDS = 2400.0  # for all rounds, on a machine that does other things too
ASK_SECONDS = 2.0  # a device may send 120 requests a minute
PROBE = [str(PYTHON), "-c", "import flwr"]


class Device(threading.Thread):
    """An app that asks its edge again and again."""

    def __init__(self, bundle: Path, state: Path, edge: RunningEdge, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.bundle, self.state, self.over = bundle, state, over
        self.client = FederationClient(edge.url, state.with_suffix(".device"), ca_file=edge.ca_file)
        self.client.enrol(edge.token())
        self.failed: BaseException | None = None
        self.done, self.unreached = False, 0

    def run(self) -> None:
        try:
            with PersonalModel.open(self.bundle, self.state) as model:
                joined(model)
                while not self.done and not self.over.is_set():
                    try:
                        self.done = learn_together(model, self.client).done
                    except ServerError as error:  # killed, or asked too often
                        self.unreached += 1
                        self.over.wait(error.retry_seconds)
                    self.over.wait(ASK_SECONDS)
        except BaseException as error:
            self.failed = error


def rows(database: Path, statement: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(statement).fetchall()


@contextmanager
def led(command: list[str], told: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A cloud that runs until its rounds have ended, or until the end."""
    with told.open("ab") as output:
        cloud = subprocess.Popen(command, stdout=output)
    try:
        yield cloud
    finally:
        cloud.terminate()
        cloud.wait()


def wait_until(reached: Callable[[], bool], cloud: subprocess.Popen[bytes], told: Path) -> None:
    ends = time.monotonic() + SECONDS
    while not reached():
        assert cloud.poll() is None, told.read_text()
        assert time.monotonic() < ends, told.read_text()
        time.sleep(0.2)


@pytest.mark.slow
def test_all_come_to_one_adapter_though_an_edge_is_killed(exact: Path, tmp_path: Path) -> None:
    if not PYTHON.exists() or subprocess.run(PROBE, capture_output=True).returncode:
        pytest.skip("no server/.venv with Flower: run make test-server once")
    bundle = with_federation(exact, tmp_path / "bundle", clip=1.0, noise=1.0, budget=1000.0)
    state, told, over = tmp_path / "cloud", tmp_path / "told", threading.Event()
    settings = {"rounds": ROUNDS, "devices": DEVICES, "least_devices": EDGES * DEVICES, "rate": RATE, "half_every": 5}
    with ExitStack() as stack:
        edges = [
            stack.enter_context(running_edge(bundle, PRIVATE, tmp_path / name, led=True, retry_seconds=0))
            for name in ("a", "b")
        ]
        command = [*COMMAND, "cloud", str(bundle), "--state", str(state)]
        for edge in edges:
            command += ["--edge", str(edge.state)]
        for name, value in settings.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        stack.callback(over.set)
        devices = [
            Device(bundle, tmp_path / f"user{place}{number}", edge, over)
            for place, edge in enumerate(edges)
            for number in range(DEVICES)
        ]
        for device in devices:
            device.start()
        cloud = stack.enter_context(led(command, told))

        def ended() -> int:
            database = state / "cloud.sqlite"
            if not database.exists():
                return 0
            try:
                return int(rows(database, "SELECT COUNT(*) FROM rounds WHERE adapter IS NOT NULL")[0][0])
            except sqlite3.OperationalError:  # its tables are being made
                return 0

        killed_after = ROUNDS // 2
        wait_until(lambda: ended() >= killed_after, cloud, told)
        edges[1].process.send_signal(signal.SIGKILL)
        edges[1].process.wait()
        time.sleep(3.0)
        edges[1].start()
        if full():
            wait_until(lambda: ended() >= killed_after + 2, cloud, told)
            cloud.terminate()  # and with it the SuperLink, the SuperNodes and the run
            cloud.wait()
            cloud = stack.enter_context(led(command, told))
        wait_until(lambda: ended() >= ROUNDS, cloud, told)
        for device in devices:
            device.join(300)
        assert cloud.wait(300) == 0, told.read_text()
    assert [device.failed for device in devices] == [None] * len(devices)
    held_against_each_other(state, edges, devices)
    assert f"privacy: {ROUNDS} rounds of one device" in told.read_text()
    counts = {"rounds": ROUNDS, "devices": len(devices), "edge killed": 1}
    record_check("a cloud with Flower, two edges and devices of the core", counts)


def held_against_each_other(state: Path, edges: list[RunningEdge], devices: list[Device]) -> None:
    """One adapter at all parties, and in each step the numbers that the edges have counted, once."""
    of_cloud = rows(state / "cloud.sqlite", "SELECT number, coefficients, adapter FROM rounds ORDER BY number")
    for edge in edges:
        assert edge.rows("SELECT number, coefficients, adapter FROM rounds ORDER BY number") == of_cloud
        assert edge.rows(
            "SELECT round, COUNT(*), COUNT(DISTINCT device) FROM numbers WHERE late = 0 GROUP BY round"
        ) == [(number, DEVICES, DEVICES) for number in range(1, ROUNDS + 1)]
    for device in devices:
        assert device.done
        assert select(device.state, "SELECT round, adapter FROM federations") == [[ROUNDS, of_cloud[-1][2]]]
    for number, coefficients, _ in of_cloud:
        numbers: dict[int, list[float]] = {}
        for edge in edges:
            statement = f"SELECT first, numbers FROM numbers WHERE round = {number} AND late = 0"
            for first, text in edge.rows(statement):
                numbers.setdefault(first, []).extend(json.loads(text))
        assert sorted(map(len, numbers.values())) == [1] * EDGES * DEVICES  # each device had its own direction
        expected = {along.number: along.coefficient for along in step_of(numbers, RATE / len(numbers))}
        assert dict(enumerate(coefficients_of(coefficients))) == expected
