# SPDX-License-Identifier: Apache-2.0
"""A server that is killed while devices send: no number counts twice, and nothing that was acknowledged is lost.

Servers are forked from this process, which has everything imported, so one starts in milliseconds and can be killed often.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import socket
import threading
from pathlib import Path

import httpx
import pytest
import uvicorn
from bespoke_federated.adapter import Adapter, Step
from bespoke_federated.app import application
from bespoke_federated.edge import Edge, made_tokens
from bespoke_federated.settings import RoundSettings
from bespoke_federated.store import Store
from federation_client import Client
from full_counts import FULL
from tests.support.federation_key import PRIVATE

from bespoke.bundle.reader import read_bundle
from bespoke.rules.aggregation import step_of
from bespoke.rules.federation import coefficients_of

KILLS = 100 if FULL else 15
DEVICES, RATE = 3, 0.5
START_SECONDS = 0.3  # of a process that may be killed before it answers
REQUEST_SECONDS = 0.04
ANSWER_SECONDS = 0.5  # then the client takes its request for lost
SETTINGS = RoundSettings(rounds=100_000, devices=DEVICES, least_devices=1, rate=RATE, half_every=3, retry_seconds=0.0)


class Remote:
    """A server behind a socket that outlives it: what nobody accepts yet waits there for the next server."""

    def __init__(self, bundle: Path, state: Path) -> None:
        self.bundle, self.state = bundle, state
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        with read_bundle(bundle) as opened:
            self.initial = Adapter.of_bundle(opened).sha256
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.socket.getsockname()[1]}", timeout=ANSWER_SECONDS)

    def send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> httpx.Response:
        return self.http.request(method, path, content=body, headers=headers)

    def start(self) -> int:
        """The id of a new process that serves."""
        process = os.fork()
        if not process:
            try:
                logging.disable()
                edge = Edge(read_bundle(self.bundle), PRIVATE, self.state, SETTINGS)
                edge._of_devices._most = edge._of_devices._a_second = 1e9  # nobody waits here
                edge.limits = edge.limits.model_copy(update={"address_requests": 10**9})
                uvicorn.Server(uvicorn.Config(application(edge), log_level="critical")).run(sockets=[self.socket])
            finally:
                os._exit(1)
        return process


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


class Log:
    """What clients were told, to be held against the state."""

    def __init__(self) -> None:
        self.sent: dict[tuple[str, int], list[float]] = {}
        self.acknowledged: set[tuple[str, int]] = set()
        self.adapters: dict[int, str] = {}
        self.requests = 0

    def exchange(self, client: Client, random_number: random.Random) -> None:
        self.requests += 1
        offered = list(client.numbers)
        answer = client.ask()
        for sent in offered:
            if sent["round"] in answer.taken:
                self.acknowledged.add((client.id, sent["round"]))
        for span in answer.rounds:
            last = span.first + span.count - 1
            assert self.adapters.setdefault(last, span.adapter) == span.adapter  # what a round led to stays so
        asked = answer.measure
        if asked and (client.id, asked.round) not in self.sent:
            self.sent[client.id, asked.round] = [random_number.uniform(-1, 1)]
            client.measure(answer, self.sent[client.id, asked.round])


def test_a_killed_server_counts_nothing_twice_and_loses_nothing(bundle: Path, tmp_path: Path) -> None:
    state, seen, chance = tmp_path / "state", Log(), random.Random(1)
    remote = Remote(bundle, state)
    store = Store(state)
    tokens = made_tokens(store, DEVICES, 4e9)
    store.close()
    clients = [Client(remote) for _ in range(DEVICES)]
    enrolled = [False] * DEVICES
    for number in range(KILLS):
        process = remote.start()
        # Every third is killed while it starts, the others within a request after some that were answered.
        answers = chance.randint(1, 8) if number % 3 else 0
        killing = threading.Timer(chance.uniform(0, REQUEST_SECONDS if answers else START_SECONDS), kill, (process,))
        if not answers:
            killing.start()
        ended = 0
        while not ended:
            try:
                for place, client in enumerate(clients):
                    if not enrolled[place]:
                        assert client.enrol(tokens[place]).status_code == 200
                        enrolled[place] = True
                    seen.exchange(client, chance)
                    answers -= 1
                    if answers == 0:
                        killing.start()
            except httpx.TransportError:  # killed in between, or slow
                ended, _ = os.waitpid(process, os.WNOHANG)
        killing.join()
    remote.http.close()
    remote.socket.close()
    assert seen.requests > KILLS
    held_against_the_state(bundle, state, seen)


def held_against_the_state(bundle: Path, state: Path, seen: Log) -> None:
    with read_bundle(bundle) as opened, Edge(opened, PRIVATE, state, SETTINGS) as edge:
        rows = edge.store.ended_after(0, 10**6)
        assert len(rows) > 3
        kept = edge.store._all("SELECT device, round, numbers, late FROM numbers")
        assert len(kept) == len({row[:2] for row in kept})  # one of each device and round
        found = {(device, number): text for device, number, text, _ in kept}
        for device, number in seen.acknowledged:
            assert found[device, number] == f"[{seen.sent[device, number][0]!r}]"
        for row in rows:  # each number that counts is in the round's step, once
            numbers = dict(edge.store.numbers(row.number))
            coefficients = [0.0] * DEVICES
            for along in step_of({first: [one] for first, (one,) in numbers.items()}, RATE / max(1, len(numbers))):
                coefficients[along.number] = along.coefficient
            assert coefficients_of(row.coefficients or "") == coefficients
        adapter = Adapter.of_bundle(opened)
        for row in rows:
            adapter = adapter.after(Step(coefficients_of(row.coefficients or ""), row.half))
            assert adapter.sha256 == row.adapter
            assert seen.adapters.get(row.number, row.adapter) == row.adapter
        assert max(seen.adapters) <= rows[-1].number


@pytest.mark.parametrize("statement", range(1, 40, 3 if FULL else 9))
def test_a_request_that_is_cut_off_anywhere_changes_all_or_nothing(
    bundle: Path, tmp_path: Path, statement: int
) -> None:
    """The process ends before the n-th statement behind the start, in the middle of a transaction or between two."""
    state, chance, seen = tmp_path / "state", random.Random(statement), Log()
    remote = Remote(bundle, state)
    process = os.fork()
    if not process:
        try:
            logging.disable()
            edge = Edge(read_bundle(bundle), PRIVATE, state, SETTINGS.model_copy(update={"devices": 1}))
            made = made_tokens(edge.store, 1, 4e9)
            (tmp_path / "token").write_text(made[0])
            left = [statement + 60]
            run = edge.store._database.set_trace_callback
            run(lambda _: left.__setitem__(0, left[0] - 1) or (os._exit(9) if left[0] <= 0 else None))
            uvicorn.Server(uvicorn.Config(application(edge), log_level="critical")).run(sockets=[remote.socket])
        finally:
            os._exit(1)
    client = Client(remote)
    while not (tmp_path / "token").exists() or not (tmp_path / "token").read_text():
        threading.Event().wait(0.01)
    has_enrolled, ended = False, 0
    while not ended:
        try:
            has_enrolled = has_enrolled or client.enrol((tmp_path / "token").read_text()).status_code == 200
            seen.exchange(client, chance)
        except httpx.TransportError:
            ended, status = os.waitpid(process, os.WNOHANG)
    assert os.waitstatus_to_exitcode(status) == 9
    remote.http.close()
    remote.socket.close()
    with read_bundle(bundle) as opened, Edge(opened, PRIVATE, state, SETTINGS) as edge:
        for device, number in seen.acknowledged:
            assert edge.store._one("SELECT numbers FROM numbers WHERE round = ? AND device = ?", number, device) == (
                f"[{seen.sent[device, number][0]!r}]",
            )
        for number, adapter in seen.adapters.items():
            assert edge.rounds.adapter_after(number) == adapter
        counted = edge.store.totals()["counted"]
        assert counted <= len(seen.sent)
        assert edge.store.last_ended() is None or edge.store.last_ended().number <= counted
