# SPDX-License-Identifier: Apache-2.0
"""Ten thousand devices and one server over HTTPS on one machine: rounds, latency, memory, and what many more would need.

server/.venv/bin/python -m pytest -m benchmark -s tests/test_load.py
"""

from __future__ import annotations

import http.client
import math
import os
import queue
import random
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from bespoke_federated.adapter import Adapter
from bespoke_federated.edge import made_tokens
from bespoke_federated.store import Store
from federation_client import Client
from tests.benchmarks.figures import write_table
from tests.support.federation_key import PRIVATE

from bespoke.bundle.reader import read_bundle

TRYING = os.environ.get("BESPOKE_FIGURES") == "print"
ROUNDS = 10
IN_A_ROUND = 40 if TRYING else 1000
DEVICES = ROUNDS * IN_A_ROUND
THREADS = 16  # devices that are at it at once
MANY, NIGHT_SECONDS = 10_000_000, 6 * 3600
COMMAND = [sys.executable, "-m", "bespoke_federated"]


class Wire:
    """A server that clients of one thread send to over one connection, as a load balancer would."""

    def __init__(self, port: int, context: ssl.SSLContext, initial: str) -> None:
        self.initial = initial
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.bytes = [0, 0]
        self._connection = http.client.HTTPSConnection("localhost", port, context=context)

    def send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> httpx.Response:
        began = time.perf_counter()
        self._connection.request(method, path, body, headers or {})
        answer = self._connection.getresponse()
        content = answer.read()
        self.seconds[path].append(time.perf_counter() - began)
        self.bytes[0] += len(body)
        self.bytes[1] += len(content)
        return httpx.Response(answer.status, content=content)


def peak_bytes(process: int) -> int:
    """The most memory that a process has had."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


def shared(wires: list[Wire], work: queue.Queue[Any], do: Callable[[Wire, Any], None]) -> float:
    """Empties the queue with a thread for each wire. Returns the seconds that it took."""

    def run(wire: Wire) -> None:
        while True:
            try:
                item = work.get_nowait()
            except queue.Empty:
                return
            try:
                do(wire, item)
            except Exception as error:
                failed.append(error)
                return

    failed: list[Exception] = []
    threads = [threading.Thread(target=run, args=(wire,)) for wire in wires]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed[0]
    return time.perf_counter() - began


def started(bundle: Path, place: Path, port: int) -> tuple[subprocess.Popen[bytes], ssl.SSLContext]:
    (place / "leader.pem").write_bytes(PRIVATE)
    subprocess.run([*COMMAND, "key", "--folder", place], check=True, capture_output=True)
    options = {
        "key": place / "leader.pem",
        "state": place / "state",
        "port": port,
        "tls-cert": place / "tls-cert.pem",
        "tls-key": place / "tls-key.pem",
        "rounds": ROUNDS,
        "devices": IN_A_ROUND,
        "least-devices": IN_A_ROUND,
        "rate": 0.01,
        "retry-seconds": 0,
        "address-requests": 10**9,
    }
    given = [str(part) for name, value in options.items() for part in (f"--{name}", value)]
    process = subprocess.Popen([*COMMAND, "serve", str(bundle), *given], stderr=subprocess.DEVNULL)
    context = ssl.create_default_context(cafile=place / "tls-cert.pem")
    while True:
        try:
            http.client.HTTPSConnection("localhost", port, context=context).connect()
            return process, context
        except OSError:
            assert process.poll() is None
            time.sleep(0.1)


@pytest.mark.benchmark
def test_ten_thousand_devices_and_one_server(bundle: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process, context = started(bundle, tmp_path, port)
    try:
        _measure(bundle, tmp_path / "state", process.pid, port, context)
    finally:
        process.terminate()
        process.wait(60)


def _measure(bundle: Path, state: Path, process: int, port: int, context: ssl.SSLContext) -> None:
    store = Store(state)
    tokens = made_tokens(store, DEVICES, time.time() + 86_400)
    with read_bundle(bundle) as opened:
        initial = Adapter.of_bundle(opened).sha256
    wires = [Wire(port, context, initial) for _ in range(THREADS)]
    devices = [Client(wires[0]) for _ in range(DEVICES)]

    work: queue.Queue[Any] = queue.Queue()
    for pair in zip(devices, tokens, strict=True):
        work.put(pair)

    def enrol(wire: Wire, pair: tuple[Client, str]) -> None:
        device, token = pair
        device.served = wire
        assert device.enrol(token).status_code == 200

    enrolling = shared(wires, work, enrol)
    before = {wire: list(wire.bytes) for wire in wires}

    for device in random.Random(1).sample(devices, DEVICES):
        work.put(device)

    def take_part(wire: Wire, device: Client) -> None:
        device.served = wire
        answer = device.ask()
        if answer.measure is not None:
            device.measure(answer, [0.5])
            device.ask()
        elif not answer.done:
            work.put(device)  # the round is full and has not ended: this device comes again

    measuring = shared(wires, work, take_part)
    counted = store.totals()["counted"]
    assert counted == DEVICES
    while (last := store.last_ended()) is None or last.number < ROUNDS:
        time.sleep(0.1)
    asks = sorted(second for wire in wires for second in wire.seconds["/v1/ask"])
    up, down = (sum(wire.bytes[way] - before[wire][way] for wire in wires) for way in (0, 1))
    kept = sum(file.stat().st_size for file in state.rglob("*") if file.is_file())
    store.close()

    def of(share: float) -> float:
        return 1000 * asks[math.ceil(share * len(asks)) - 1]

    rate = len(asks) / measuring
    header = ("", "measured")
    rows: list[list[Any]] = [
        ["devices enrolled a second", f"{DEVICES / enrolling:.0f}"],
        ["requests", f"{len(asks):,}"],
        ["requests a second", f"{rate:.0f}"],
        ["a request takes, median", f"{of(0.5):.0f} ms"],
        ["99% take at most", f"{of(0.99):.0f} ms"],
        ["seconds for a round", f"{measuring / ROUNDS:.1f}"],
        ["most memory of the server", f"{peak_bytes(process) / 2**20:.0f} MiB"],
        ["bytes up for each number", f"{up / counted:.0f}"],
        ["bytes down for each number", f"{down / counted:.0f}"],
        ["kept on disk for each number", f"{kept / counted:.0f} bytes"],
    ]
    write_table(
        "federation_load",
        header,
        rows,
        f"{DEVICES:,} devices over HTTPS on the server's own machine, {THREADS} at once, {IN_A_ROUND:,} a round, {ROUNDS} rounds. "
        "Devices and server share its cores. Each commit waits for the disk. Numbers are invented: nothing is trained.",
    )
    a_second = 2 * MANY / NIGHT_SECONDS
    write_table(
        "federation_many",
        ("ten million devices", "needed"),
        [
            ["requests a second, if each asks and answers once in six hours of a night", f"{a_second:.0f}"],
            ["machines like this one, half busy", math.ceil(2 * a_second / rate)],
            ["rounds of 1,000 devices in a day, if each takes part once", f"{MANY // IN_A_ROUND:,}"],
            ["GB up and down in a day", f"{MANY * up / counted / 1e9:.0f} and {MANY * down / counted / 1e9:.0f}"],
            ["GB on disk in a day", f"{MANY * kept / counted / 1e9:.1f}"],
        ],
        "Computed from the table above.",
        machine="",
    )
