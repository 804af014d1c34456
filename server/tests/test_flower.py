# SPDX-License-Identifier: Apache-2.0
"""Flower itself, in processes of its own: a SuperLink, two SuperNodes, two edges behind HTTP, and devices. And its accountant."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import guided_orders
import httpx
import pytest
from bespoke_federated.cloud.store import DATABASE, rounds_ended
from bespoke_federated.edge import made_tokens
from bespoke_federated.store import Store
from federation_client import Client
from guided_rounds import PROBED, after, offer
from small_bundle import by_hand
from test_command_line import COMMAND, free_port
from tests.support.federation_key import PRIVATE

from bespoke.errors import ConfigError
from bespoke.rules.federation import rounded
from bespoke.rules.privacy import epsilon, rho_of

pytest.importorskip("flwr")
ROUNDS, RATE, SECONDS = 2, 0.5, 600
NUMBERS = (0.5, -0.25)  # of the device of each edge


class Remote:
    """A led edge in a process of its own, for a client."""

    def __init__(self, bundle: Path, place: Path) -> None:
        self.initial, self.state = by_hand([]), place
        key = place.with_suffix(".pem")
        key.write_bytes(PRIVATE)
        port = free_port()
        command = [*COMMAND, "serve", str(bundle), "--key", str(key), "--state", str(place), "--port", str(port)]
        self.process = subprocess.Popen([*command, "--led", "--retry-seconds", "0"], stdout=subprocess.DEVNULL)
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20)

    def send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> httpx.Response:
        return self.http.request(method, path, content=body, headers=headers)

    def client(self) -> Client:
        ends = time.monotonic() + SECONDS
        while True:
            try:
                self.http.get("/v1/health")
                break
            except httpx.TransportError:
                assert time.monotonic() < ends
                time.sleep(0.1)
        store = Store(self.state)
        (token,) = made_tokens(store, 1, 4e9)
        store.close()
        client = Client(self)
        assert client.enrol(token).status_code == 200
        return client


@contextmanager
def stopped_at_the_end(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


class Led(NamedTuple):
    """What came of a task that a cloud has led."""

    clients: list[Client]
    taken: list[dict[int, float]]  # numbers by direction, of each round; of devices that share one the last
    told: str


def led_by_flower(bundle: Path, tmp_path: Path, rounds: int, *options: str) -> Led:
    """Leads two edges, with a device each, until the rounds have ended."""
    command = [*COMMAND, "cloud", str(bundle), "--state", str(tmp_path / "cloud")]
    for name in ("a", "b"):
        command += ["--edge", str(tmp_path / name)]
    command += ["--rounds", str(rounds), "--devices", "1", "--least-devices", "2", "--half-every", "0", *options]
    with ExitStack() as stack:
        edges = [Remote(bundle, tmp_path / name) for name in ("a", "b")]
        for edge in edges:
            stack.enter_context(stopped_at_the_end(edge.process))
        clients = [edge.client() for edge in edges]
        with (tmp_path / "told").open("wb") as told:
            cloud = stack.enter_context(stopped_at_the_end(subprocess.Popen(command, stdout=told)))
        taken: list[dict[int, float]] = [{} for _ in range(rounds)]
        ends = time.monotonic() + SECONDS
        while cloud.poll() is None:
            assert time.monotonic() < ends, (tmp_path / "told").read_text()
            for client, number in zip(clients, NUMBERS, strict=True):
                answer = client.ask()
                if answer.measure is not None and not client.numbers:
                    taken[answer.measure.round - 1][answer.measure.first] = number
                    client.measure(answer, [number])
            time.sleep(1.0)  # a device may ask 120 times a minute
        for client in clients:
            client.ask()
    told_lines = (tmp_path / "told").read_text()
    assert cloud.returncode == 0, told_lines
    assert rounds_ended(tmp_path / "cloud") == rounds
    return Led(clients, taken, told_lines)


def test_flower_carries_rounds_between_a_cloud_and_two_edges(bundle: Path, tmp_path: Path) -> None:
    clients, taken, told = led_by_flower(bundle, tmp_path, ROUNDS, "--rate", str(RATE))
    adapter = by_hand([[rounded(RATE / 2 * of_round[direction]) for direction in range(2)] for of_round in taken])
    assert [(client.round, client.adapter) for client in clients] == [(ROUNDS, adapter)] * 2
    assert (tmp_path / "cloud" / DATABASE).exists()
    assert f"privacy: {ROUNDS} rounds of one device, epsilon" in told


def test_flower_carries_guidance_to_two_edges(probed: Path, tmp_path: Path) -> None:
    """The device of each edge measures the first of two columns."""
    (tmp_path / "cloud").mkdir()
    offer(tmp_path / "cloud", by_hand([]), 1)
    options = ["--guidance", "--probe-coefficient", str(PROBED), "--guided-rate", str(guided_orders.RATE)]
    clients, _, _ = led_by_flower(probed, tmp_path, 1, *options)
    adapter = after([(1, [guided_orders.step(*NUMBERS), 0.0])])
    assert [(client.round, client.adapter) for client in clients] == [(1, adapter)] * 2


@pytest.mark.parametrize("noise", [0.7, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("rounds", [1, 8, 300])
def test_the_accountants_epsilon_lies_below_that_of_rho(noise: float, rounds: int) -> None:
    """Both bound the same mechanism, whose own delta is known."""
    from bespoke_federated.flower.accountant import renyi_epsilon

    delta, rho = 1e-5, rho_of([noise] * rounds)
    order = 1 + math.sqrt(math.log(1 / delta) / rho)  # the best one
    assert order * rho + math.log(1 / delta) / (order - 1) == pytest.approx(epsilon(rho, delta))
    found = renyi_epsilon(noise, rounds, delta)
    assert exact_delta(found, math.sqrt(rounds) / noise) <= delta
    assert found < epsilon(rho, delta)
    assert found > 0.6 * epsilon(rho, delta)


def exact_delta(bound: float, distance: float) -> float:
    """The delta of Gaussian noise at an epsilon (Balle and Wang 2018, arXiv 1805.06530, theorem 8)."""

    def below(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    near, far = distance / 2 - bound / distance, -distance / 2 - bound / distance
    return below(near) - math.exp(min(bound, 700.0)) * below(far)


def test_without_noise_or_rounds_there_is_nothing_to_account() -> None:
    from bespoke_federated.flower.accountant import renyi_epsilon

    assert renyi_epsilon(0.0, 3) == math.inf
    assert renyi_epsilon(1.0, 0) == 0.0


def test_without_an_edge_a_nodes_app_says_what_is_missing() -> None:
    from bespoke_federated.flower.client_app import state_of
    from flwr.app import Context, RecordDict

    with pytest.raises(ConfigError, match="edge="):
        state_of(Context(1, 1, {}, RecordDict(), {}))


def test_the_server_needs_no_flower(bundle: Path, tmp_path: Path) -> None:
    program = "import sys; sys.modules['flwr'] = None; from bespoke_federated.__main__ import main; main()"
    run = [sys.executable, "-c", program]
    done = subprocess.run([*run, "token", "--state", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    arguments = ["cloud", str(bundle), "--state", str(tmp_path / "cloud"), "--edge", str(tmp_path)]
    done = subprocess.run([*run, *arguments], capture_output=True, text=True, env=dict(os.environ))
    assert (done.returncode, "bespoke-federated[flower]" in done.stderr) == (2, True), done.stderr
    assert len(done.stderr.splitlines()) == 1
