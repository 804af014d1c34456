# SPDX-License-Identifier: Apache-2.0
"""A server of bespoke-federated in a process of its own, for devices of tests."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

PYTHON = REPOSITORY / "server" / ".venv" / "bin" / "python"
COMMAND = [str(PYTHON), "-m", "bespoke_federated"]
START_SECONDS = 60.0
ROUND_SECONDS = 60.0
MOST_REQUESTS = 100_000  # a minute: devices of tests ask as fast as they can


class RunningEdge:
    """A server that runs. `url`, `state`, and `ca_file` for clients that are to trust it.

    tls:      whether it speaks HTTPS, with a certificate for localhost
    settings: options of `serve`, with underscores; True: one without a value
    """

    def __init__(self, bundle: Path, private_key: bytes, place: Path, *, tls: bool, **settings: object) -> None:
        place.mkdir()
        (place / "leader.pem").write_bytes(private_key)
        self.state, self.ca_file = place / "state", place / "tls-cert.pem"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"https://localhost:{port}" if tls else f"http://127.0.0.1:{port}"
        options: dict[str, object] = {"key": place / "leader.pem", "state": self.state, "port": port}
        options |= {"device_requests": MOST_REQUESTS, "address_requests": MOST_REQUESTS, **settings}
        self._context = None
        if tls:
            subprocess.run([*COMMAND, "key", "--folder", str(place)], check=True, capture_output=True)
            options |= {"tls_cert": self.ca_file, "tls_key": place / "tls-key.pem"}
            self._context = ssl.create_default_context(cafile=str(self.ca_file))
        self._command = [*COMMAND, "serve", str(bundle)]
        for name, value in options.items():
            self._command.append(f"--{name.replace('_', '-')}")
            if value is not True:
                self._command.append(str(value))
        self.start()

    def start(self) -> None:
        """Starts the process, for the first time or again, and waits until it answers."""
        self.process = subprocess.Popen(self._command)
        ends = time.monotonic() + START_SECONDS
        while True:
            try:
                self.get("/v1/health")
                return
            except urllib.error.URLError:
                assert self.process.poll() is None, "the server has ended"
                assert time.monotonic() < ends, "the server does not answer"
                time.sleep(0.1)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=20, context=self._context) as answer:
            text: str = answer.read().decode()
        return text

    def figure(self, name: str) -> float:
        """A figure of /metrics."""
        found = re.search(rf"^bespoke_{name} (\S+)$", self.get("/metrics"), re.MULTILINE)
        assert found, name
        return float(found[1])

    def wait_for_round(self, number: int) -> None:
        """Waits until a round has ended."""
        ends = time.monotonic() + ROUND_SECONDS
        while json.loads(self.get("/v1/health"))["rounds_ended"] < number:
            assert time.monotonic() < ends, f"round {number} does not end"
            time.sleep(0.05)

    def wait_for(self, statement: str, *values: object) -> None:
        """Waits until what the server keeps has such a row."""
        ends = time.monotonic() + ROUND_SECONDS
        while not self.rows(statement, *values):
            assert time.monotonic() < ends, f"{statement} finds nothing"
            time.sleep(0.05)

    def token(self) -> str:
        """A new one-time token."""
        return self.tokens(1)[0]

    def tokens(self, count: int) -> list[str]:
        """New one-time tokens."""
        command = [*COMMAND, "token", "--state", str(self.state), "--count", str(count)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """What the server has kept."""
        with closing(sqlite3.connect(self.state / "edge.sqlite")) as connection:
            return connection.execute(statement, values).fetchall()


@contextmanager
def running_edge(
    bundle: Path, private_key: bytes, place: Path, *, tls: bool = True, **settings: object
) -> Iterator[RunningEdge]:
    """Serves the federation of a bundle. Skips where no server is installed."""
    if not PYTHON.exists():
        pytest.skip("no server/.venv: run make test-server once")
    edge = RunningEdge(bundle, private_key, place, tls=tls, **settings)
    try:
        yield edge
    finally:
        edge.process.terminate()
        edge.process.wait(30)
