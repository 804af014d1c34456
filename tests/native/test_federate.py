# SPDX-License-Identifier: Apache-2.0
"""`bespoke federate` and `learn_together` with a real server over HTTPS: rounds, kills, refusals, leaving."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from bespoke import FederationClient, PersonalModel, learn_together
from bespoke.errors import ConfigError, ServerError, StateError
from bespoke.federated_device import DeviceKey
from tests.native.federation_devices import exact, joined, with_federation
from tests.support.checks import full, new_seed, record_check
from tests.support.federation_edge import RunningEdge, running_edge
from tests.support.federation_key import PRIVATE
from tests.support.reading import select
from tests.unit.cli.commands import bespoke

__all__ = ["exact"]

DEVICES = 3
KILLS = 100 if full() else 5
KILLED_AFTER = (0.0, 0.6)  # seconds behind the first request of a client


@pytest.fixture(scope="module")
def bundle(exact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("noised") / "together.bundle"
    return with_federation(exact, place, clip=1.0, noise=1.0, budget=1000.0)


@pytest.fixture
def edge(bundle: Path, tmp_path: Path) -> Iterator[RunningEdge]:
    settings = {"rounds": 2, "devices": DEVICES, "least_devices": DEVICES, "rate": 0.05, "retry_seconds": 0}
    with running_edge(bundle, PRIVATE, tmp_path / "edge", **settings) as running:
        yield running


def state_with_examples(bundle: Path, place: Path) -> Path:
    with PersonalModel.open(bundle, place) as model:
        for number in range(2):
            model.examples.add({"tokens": [3, 4, 5 + number], "mask": [0, 1, 1]}, id=str(number), use="train")
    return place


def run(edge: RunningEdge, bundle: Path, state: Path, *more: object) -> dict[str, object]:
    options = ["--state", state, "--server", edge.url, "--ca-file", edge.ca_file, "--format", "json"]
    answer: dict[str, object] = bespoke("federate", "run", bundle, *options, *more).ok().json
    return answer


def test_three_devices_take_two_rounds_and_come_to_one_adapter(edge: RunningEdge, bundle: Path, tmp_path: Path) -> None:
    states = [state_with_examples(bundle, tmp_path / f"user{number}") for number in range(DEVICES)]
    for state in states:
        assert "cannot be recalled" in bespoke("federate", "join", bundle, "--state", state, "--yes").ok().out
    for state in states:
        assert run(edge, bundle, state, "--token", edge.token())["measured"] == [1]
    for state in states:
        assert run(edge, bundle, state)["measured"] == [2]
    for state in states:
        last = run(edge, bundle, state)
        assert (last["round"], last["done"], last["measured"]) == (2, True, [])
    assert edge.rows("SELECT round, count(*) FROM numbers GROUP BY round") == [(1, DEVICES), (2, DEVICES)]

    status = bespoke("federate", "status", bundle, "--state", states[0], "--format", "json").ok().json
    assert (status["rounds_sent"], status["pending"], status["spent"]) == (2, 0, 1.0)
    assert 0 < status["bytes_sent"] < 20_000
    ((adapter,),) = edge.rows("SELECT adapter FROM rounds WHERE number = 2")
    for state in states:
        assert select(state, "SELECT round, adapter FROM federations") == [[2, adapter]]
    assert not edge.rows("SELECT 1 FROM numbers WHERE late")


def test_nothing_is_sent_without_consent_or_a_token(edge: RunningEdge, bundle: Path, tmp_path: Path) -> None:
    state = state_with_examples(bundle, tmp_path / "user")
    options = ["--state", state, "--server", edge.url, "--ca-file", edge.ca_file]
    refused = bespoke("federate", "run", bundle, *options, "--token", edge.token())
    assert (refused.code, "consent" in refused.err) == (2, True)
    bespoke("federate", "join", bundle, "--state", state, "--yes").ok()
    refused = bespoke("federate", "run", bundle, *options)
    assert (refused.code, "--token: got none" in refused.err) == (2, True)
    refused = bespoke("federate", "run", bundle, *options, "--token", "x" * 43)
    assert (refused.code, "a token that nobody was given" in refused.err) == (17, True)
    assert not edge.rows("SELECT 1 FROM devices")


def test_leaving_deletes_the_key_and_a_new_one_needs_a_token(edge: RunningEdge, bundle: Path, tmp_path: Path) -> None:
    state = state_with_examples(bundle, tmp_path / "user")
    bespoke("federate", "join", bundle, "--state", state, "--yes").ok()
    run(edge, bundle, state, "--token", edge.token())
    key = DeviceKey(tmp_path / "user.device")
    first = key.public_key
    assert os.stat(key.path).st_mode & 0o777 == 0o600
    bespoke("federate", "leave", bundle, "--state", state).ok()
    assert not list(tmp_path.glob("user.device*"))
    bespoke("federate", "join", bundle, "--state", state, "--yes").ok()
    options = ["--state", state, "--server", edge.url, "--ca-file", edge.ca_file]
    assert bespoke("federate", "run", bundle, *options).code == 2
    run(edge, bundle, state, "--token", edge.token())
    assert key.public_key != first


def test_a_client_that_is_killed_anywhere_sends_one_number_a_round(bundle: Path, tmp_path: Path) -> None:
    seed = new_seed()
    rng = random.Random(seed)
    settings = {"rounds": 1000, "devices": 1, "least_devices": 1, "rate": 0.01, "retry_seconds": 0}
    state, kills = state_with_examples(bundle, tmp_path / "user"), 0
    bespoke("federate", "join", bundle, "--state", state, "--yes").ok()
    with running_edge(bundle, PRIVATE, tmp_path / "edge", **settings) as edge:
        run(edge, bundle, state, "--token", edge.token())
        ready, go = tmp_path / "ready", [sys.executable, "-c", CLIENT, bundle, state, edge.url, edge.ca_file]
        for _ in range(KILLS):
            ready.unlink(missing_ok=True)
            process = subprocess.Popen([*map(str, go), str(ready)], stderr=subprocess.DEVNULL)
            while not ready.exists() and process.poll() is None:
                time.sleep(0.005)
            time.sleep(rng.uniform(*KILLED_AFTER))
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
        run(edge, bundle, state)
        counted = edge.rows("SELECT count(*), count(DISTINCT round) FROM numbers")
    with PersonalModel.open(bundle, state) as model:
        status = model.federation.status()
    assert kills
    assert counted == [(status.rounds_sent - status.pending,) * 2], seed
    assert status.spent == 0.5 * status.rounds_sent, seed
    record_check("a client of federated learning, killed at an instant", {"killed": kills}, seed)


CLIENT = """
import sys
from pathlib import Path
from bespoke import FederationClient, PersonalModel, learn_together
bundle, state, url, ca_file, ready = sys.argv[1:]
client = FederationClient(url, state + ".device", ca_file=ca_file)
with PersonalModel.open(bundle, state) as model:
    Path(ready).touch()
    learn_together(model, client, rounds=20)
"""


@pytest.mark.parametrize(("status", "is_gone"), [(404, True), (410, True), (403, False), (500, False)])
def test_a_file_that_the_server_no_longer_has_is_empty(status: int, is_gone: bool, tmp_path: Path) -> None:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = FederationClient(f"http://127.0.0.1:{server.server_port}", tmp_path / "device")
        if is_gone:
            assert client.fetch("0" * 64, 0, 10) == b""
        else:
            with pytest.raises(ServerError) as caught:
                client.fetch("0" * 64, 0, 10)
            assert caught.value.status == status
        server.shutdown()


def test_a_server_that_cannot_be_reached_costs_nothing(exact: Path, tmp_path: Path) -> None:
    with PersonalModel.open(exact, tmp_path / "state") as model:
        joined(model)
        before = model.federation.status()
        with pytest.raises(ServerError, match="refused"):
            learn_together(model, FederationClient("http://127.0.0.1:1", tmp_path / "device"))
        assert model.federation.status() == before


@pytest.mark.parametrize(
    "server", ["http://example.org", "ftp://example.org", "example.org", "https://", "https://a@b", 3]
)
def test_an_address_without_protection_is_refused(server: object, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="server"):
        FederationClient(server, tmp_path / "device")  # type: ignore[arg-type]


def test_a_key_file_of_something_else_is_refused_and_left(tmp_path: Path) -> None:
    (tmp_path / "device").write_bytes(b"something else" * 100)
    with pytest.raises(StateError, match="expected a device's key"):
        DeviceKey(tmp_path / "device").sign("POST", "/v1/ask", b"", 0)
    assert (tmp_path / "device").read_bytes() == b"something else" * 100


def test_counters_rise_across_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SIGNER, str(tmp_path / "device")]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate()[0].strip() for process in started]
    devices, counters = zip(*(line.split() for line in said), strict=True)
    assert len(set(devices)) == 1
    assert sorted(counters) == ["1", "2", "3"]


SIGNER = """
import sys
from bespoke.federated_device import DeviceKey
print(*DeviceKey(sys.argv[1]).sign("GET", "/", b"", None)[:2])
"""
