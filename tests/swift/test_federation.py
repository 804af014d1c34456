# SPDX-License-Identifier: Apache-2.0
"""Devices in Swift learn together with a real server: rounds, forged requests, kills, leaving, and what wrong servers answer."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.native.federation_devices import PRIVATE, exact, with_federation
from tests.support.checks import full, new_seed, record_check
from tests.support.federation_edge import RunningEdge, running_edge
from tests.support.phone_fixture import core_folder
from tests.support.reading import select
from tests.swift.package import BUILT, REPOSITORY, TREE, swift, toolchain

pytestmark = pytest.mark.swift

__all__ = ["exact"]

MEMBER = BUILT / "debug" / "Member"
DEVICES = 3
KILLS = 100 if full() else 5
SNAPSHOT_SECONDS = 120.0  # for seven rounds
KILLED_AFTER = (0.0, 0.6)  # seconds behind a process's start of its rounds


@pytest.fixture(scope="module")
def bundle(exact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("noised") / "together.bundle"
    return with_federation(exact, place, clip=1.0, noise=1.0, budget=1000.0)


@contextmanager
def edge_of(
    bundle: Path, place: Path, *, devices: int, rounds: int, tls: bool = False, **more: int
) -> Iterator[RunningEdge]:
    settings = {
        "rounds": rounds,
        "devices": devices,
        "least_devices": devices,
        "rate": 0.05,
        "retry_seconds": 0,
        **more,
    }
    place.mkdir(exist_ok=True)
    with running_edge(bundle, PRIVATE, place / "edge", tls=tls, **settings) as edge:
        yield edge


class Said(NamedTuple):
    """How a command ended, and its last line."""

    code: int
    json: dict[str, Any]
    text: str


class Member:
    """A device in Swift: a state and the key next to it."""

    def __init__(self, bundle: Path, state: Path, ca_file: Path | None = None) -> None:
        self.bundle, self.state, self.key = bundle, state, Path(f"{state}.device")
        self._environment = {"BESPOKE_SERVERS": "1", **({"BESPOKE_CA_FILE": str(ca_file)} if ca_file else {})}

    def says(self, command: str, *more: str) -> Said:
        done = toolchain(MEMBER, command, self.bundle, self.state, *more, check=False, **self._environment)
        last = done.stdout.splitlines()[-1:] or [""]
        return Said(done.returncode, json.loads(last[0]) if last[0].startswith("{") else {}, done.stdout)

    def __call__(self, command: str, *more: str) -> dict[str, Any]:
        said = self.says(command, *more)
        assert said.code == 0, said.text
        return said.json

    def started(self, command: str, *more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", str(REPOSITORY / "tools/swift.sh"), str(MEMBER), command, str(self.bundle), str(self.state), *more],
            env={**os.environ, "BESPOKE_CORE": str(core_folder() / "lib"), **self._environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )


def test_three_devices_take_two_rounds_over_https_and_come_to_one_adapter(
    compiled: str, bundle: Path, tmp_path: Path
) -> None:
    tls = Path(f"{TREE}.ok").exists()  # elsewhere nobody can say which certificates Swift trusts
    with edge_of(bundle, tmp_path, devices=DEVICES, rounds=2, tls=tls) as edge:
        ca_file = edge.ca_file if tls else None
        members = [Member(bundle, tmp_path / f"user{number}", ca_file) for number in range(DEVICES)]
        for member in members:
            assert "cannot be recalled" in member.says("join").text
        for member in members:
            assert member("run", edge.url, edge.token())["measured"] == [1]
        for member in members:
            assert member("run", edge.url)["measured"] == [2]
        for member in members:
            last = member("run", edge.url)
            assert (last["round"], last["isDone"], last["measured"]) == (2, True, [])
        assert edge.rows("SELECT round, count(*) FROM numbers GROUP BY round") == [(1, DEVICES), (2, DEVICES)]
        assert not edge.rows("SELECT 1 FROM numbers WHERE late")
        ((adapter,),) = edge.rows("SELECT adapter FROM rounds WHERE number = 2")

    said = members[0]("status")
    status = said["status"]
    assert (status["rounds_sent"], status["pending"], status["spent"]) == (2, 0, 1.0)
    assert 0 < status["epsilon_spent"] < 20
    assert 0 < said["bytesSent"] < 20_000
    assert 0 < said["bytesReceived"] < 40_000
    assert members[0].key.stat().st_mode & 0o777 == 0o600
    for member in members:
        assert select(member.state, "SELECT round, adapter FROM federations") == [[2, adapter]]
    forgotten = members[0]("forget")
    assert forgotten["rounds"] == [1, 2]
    assert members[1]("adopt")["accepted"] in (True, False)


def test_nothing_is_sent_without_consent_or_a_token(compiled: str, bundle: Path, tmp_path: Path) -> None:
    member = Member(bundle, tmp_path / "user")
    with edge_of(bundle, tmp_path, devices=1, rounds=2) as edge:
        refused = member.says("run", edge.url)
        assert (refused.code, "call join()" in refused.text) == (4, True), refused.text
        assert not member.key.exists()
        member.says("join")
        refused = member.says("run", edge.url)
        assert (refused.code, "enrol(token:)" in refused.text) == (3, True), refused.text
        assert not member.key.exists()
        refused = member.says("run", edge.url, "x" * 43)
        assert (refused.code, refused.json["status"]) == (3, 403), refused.text
        assert "a token that nobody was given" in refused.json["error"]
        assert not edge.rows("SELECT 1 FROM devices")


def test_requests_that_are_repeated_or_changed_are_refused(compiled: str, bundle: Path, tmp_path: Path) -> None:
    member = Member(bundle, tmp_path / "user")
    with edge_of(bundle, tmp_path, devices=1, rounds=2) as edge, Relay(edge.url) as relay:
        member.says("join")
        assert member("run", relay.url, edge.token())["measured"] == [1]
        before = edge.rows("SELECT round, device FROM numbers")
        assert len(before) == 1
        asks = [one for one in relay.heard if b"POST /v1/ask" in one]
        assert len(asks) >= 2
        assert relay.again(asks[1]) == 409
        counter = re.search(rb"Bespoke-Counter: (\d+)", asks[1])
        assert counter
        later = asks[1].replace(counter[0], b"Bespoke-Counter: 1000000")
        assert relay.again(later) == 401
        assert relay.again(later.replace(b'"round":0', b'"round":1')) == 401
        assert edge.rows("SELECT round, device FROM numbers") == before
        assert member("run", edge.url)["measured"] == [2]  # their counters count for nothing


def test_a_device_that_is_late_fetches_a_snapshot(compiled: str, exact: Path, tmp_path: Path) -> None:
    bundle = with_federation(exact, tmp_path / "bundle", method="mesp")  # type: ignore[arg-type]
    first, late = (Member(bundle, tmp_path / name) for name in ("first", "late"))
    # So many directions that a snapshot is less than the rounds. A device that waits for a round asks again and again.
    more = {"directions": 1024, "half_every": 3}
    with edge_of(bundle, tmp_path, devices=1, rounds=7, **more) as edge, Relay(edge.url) as relay:
        for member in (first, late):
            member.says("join")
        done = first("run", edge.url, edge.token())
        ends = time.monotonic() + SNAPSHOT_SECONDS
        while not done["isDone"]:
            assert time.monotonic() < ends, done
            done = first("run", edge.url)
        for file in (edge.state / "files").iterdir():  # the server has lost its snapshots, and makes another one
            file.unlink()
        done = late("run", relay.url, edge.token())
        assert done["measured"] == []
        edge.wait_for("SELECT 1 FROM files WHERE round = 7")
        done = late("run", relay.url)
        assert (done["round"], done["isDone"], done["measured"]) == (7, True, [])
        ((adapter,),) = edge.rows("SELECT adapter FROM rounds WHERE number = 7")
        ranges = [re.search(rb"Range: bytes=(\d+)-(\d+)", one) for one in relay.heard if b"GET /v1/files/" in one]
    assert ranges
    assert all(ranges)
    for member in (first, late):
        assert select(member.state, "SELECT round, adapter FROM federations") == [[7, adapter]]


class Relay:
    """Carries connections to a server, and keeps what came of each."""

    def __init__(self, url: str) -> None:
        self._to = ("127.0.0.1", int(url.rpartition(":")[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.heard: list[bytes] = []

    def __enter__(self) -> Relay:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def again(self, request: bytes) -> int:
        """The status of the answer to a request that is sent as it is."""
        with socket.create_connection(self._to, timeout=20) as server:
            server.sendall(request)
            return int(server.recv(65536).split()[1])

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        place = len(self.heard)
        self.heard.append(b"")
        with client, socket.create_connection(self._to) as server:

            def back() -> None:
                while piece := server.recv(65536):
                    client.sendall(piece)

            threading.Thread(target=back, daemon=True).start()
            while piece := client.recv(65536):
                self.heard[place] += piece
                server.sendall(piece)


def test_a_process_that_is_killed_anywhere_sends_one_number_a_round(
    compiled: str, bundle: Path, tmp_path: Path
) -> None:
    seed = new_seed()
    rng = random.Random(seed)
    member, kills = Member(bundle, tmp_path / "user"), 0
    with edge_of(bundle, tmp_path, devices=1, rounds=1000) as edge:
        member.says("join")
        member("run", edge.url, edge.token())
        for _ in range(KILLS):
            process = member.started("many", edge.url)
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(*KILLED_AFTER))
            process.send_signal(signal.SIGKILL)  # and with it all that it started
            kills += process.wait() == -signal.SIGKILL
            process.stdout.close()
        member("run", edge.url)
        counted = edge.rows("SELECT count(*), count(DISTINCT round) FROM numbers")
        refused = edge.rows("SELECT 1 FROM numbers WHERE late")
    status = member("status")["status"]
    assert kills
    assert not refused
    assert counted == [(status["rounds_sent"] - status["pending"],) * 2], seed
    assert status["spent"] == 0.5 * status["rounds_sent"], seed
    record_check("a device in Swift that learns together, killed at an instant", {"killed": kills}, seed)


def test_leaving_deletes_the_key_and_what_was_to_be_sent(compiled: str, bundle: Path, tmp_path: Path) -> None:
    member = Member(bundle, tmp_path / "user")
    with edge_of(bundle, tmp_path, devices=1, rounds=4) as edge:
        member.says("join")
        member("run", edge.url, edge.token())
        first = json.loads(member.key.read_text())["key"]
        assert select(member.state, "SELECT count(*) FROM federations") == [[1]]
        left = member("leave")
        assert not left["hasKey"]
        assert not left["status"]["joined"]
        assert left["status"]["pending"] == 0
        assert left["status"]["spent"] == 0.5, "what was spent stays spent"
        assert not list(tmp_path.glob("user.device*"))
        member("leave")
        member.says("join")
        assert "got no key" in member.says("run", edge.url).json["error"]
        member("run", edge.url, edge.token())
        assert json.loads(member.key.read_text())["key"] != first


class Wrong(BaseHTTPRequestHandler):
    """Answers as its server's `answers` say, and notes what it was asked."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, self.headers.get("Cookie")))  # type: ignore[attr-defined]
        status, headers, body = self.server.answers.pop(0)  # type: ignore[attr-defined]
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_what_a_wrong_server_answers_changes_nothing(compiled: str, bundle: Path, tmp_path: Path) -> None:
    member = Member(bundle, tmp_path / "user")
    member.says("join")
    before = member("status")["status"]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Wrong)
    server.asked = []  # type: ignore[attr-defined]
    server.answers = [  # type: ignore[attr-defined]
        (200, {}, b"{}"),  # to its enrolment
        (307, {"Location": "/elsewhere", "Set-Cookie": "a=b"}, b""),
        (429, {"Retry-After": "7"}, b'{"object":"the address","got":"many","expected":"fewer","next_step":"Wait"}'),
        (503, {"Retry-After": "soon"}, b"x" * 100_000),
        (200, {}, b"{" * ((16 << 20) + 1)),
        (200, {}, b"not what the bundle's server has signed"),
        (200, {"Content-Length": "1000"}, b"cut"),
    ]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}"
    said = [member.says("run", url, *token).json for token in (["token"], [], [], [], [])]
    assert [one.get("status") for one in said[:4]] == [307, 429, 503, 200]
    assert [one["retrySeconds"] for one in said] == [0, 7, 0, 0, 0]
    assert "the address: got many, expected fewer. Wait" in said[1]["error"]
    assert "more than 16777216 bytes" in said[3]["error"]
    assert said[4].get("status") is None
    cut = member.says("run", url)
    assert cut.code == 3, cut.text
    assert server.asked == [("/v1/enrol", None)] + [("/v1/ask", None)] * 6  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()
    gone = member.says("run", url)
    assert (gone.code, gone.json.get("status")) == (3, None)
    assert member("status")["status"] == before
    assert json.loads(member.key.read_text())["counter"] == 8


def test_a_device_takes_part_in_the_background(compiled: str, bundle: Path, tmp_path: Path) -> None:
    with ExitStack() as running:
        edges = [
            running.enter_context(edge_of(bundle, tmp_path / f"{number}", devices=1, rounds=1000))
            for number in range(6)
        ]
        given = {"bundle": str(bundle), "edges": [{"url": edge.url, "token": edge.token()} for edge in edges]}
        (tmp_path / "edges.json").write_text(json.dumps(given))
        said = swift(
            "test",
            "--skip-build",
            "--no-parallel",
            "--filter",
            "BackgroundFederationTests",
            BESPOKE_SERVERS="1",
            BESPOKE_EDGES=str(tmp_path / "edges.json"),
        )
    assert re.search(r"Test run with [1-9]\d* tests in 1 suite passed", said), said[-8000:]
    assert "skipped" not in said
