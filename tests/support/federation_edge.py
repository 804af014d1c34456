# SPDX-License-Identifier: Apache-2.0
"""A server of bespoke-federated in a process of its own, over HTTPS, for devices of tests."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).resolve().parents[2] / "server"
PYTHON = SERVER / ".venv" / "bin" / "python"
START_SECONDS = 60.0


class RunningEdge:
    """A server that runs. `url`, and `ca_file` for clients that are to trust it."""

    def __init__(self, process: subprocess.Popen[bytes], state: Path, ca_file: Path, port: int) -> None:
        self.process, self.state, self.ca_file = process, state, ca_file
        self.url = f"https://localhost:{port}"

    def token(self) -> str:
        command = [PYTHON, "-m", "bespoke_federated", "token", "--state", self.state]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        (database,) = self.state.glob("*.sqlite")
        with closing(sqlite3.connect(database)) as connection:
            return connection.execute(statement).fetchall()


@contextmanager
def running_edge(bundle: Path, private_key: bytes, folder: Path, **settings: object) -> Iterator[RunningEdge]:
    """Serves the federation of a bundle. `settings`: options of `serve`, with underscores. Skips where no server is installed."""
    if not PYTHON.exists():
        pytest.skip("no server is installed: make test-server does it")
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([PYTHON, "-m", "bespoke_federated", "key", "--folder", folder], check=True, capture_output=True)
    (folder / "leader.pem").write_bytes(private_key)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command: list[object] = [PYTHON, "-m", "bespoke_federated", "serve", bundle, "--key", folder / "leader.pem"]
    command += ["--state", folder / "state", "--port", port]
    command += ["--tls-cert", folder / "tls-cert.pem", "--tls-key", folder / "tls-key.pem"]
    for name, value in settings.items():
        command += [f"--{name.replace('_', '-')}", value]
    process = subprocess.Popen([str(part) for part in command], stderr=subprocess.PIPE)
    try:
        _wait_until_it_listens(process, port)
        yield RunningEdge(process, folder / "state", folder / "tls-cert.pem", port)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int) -> None:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends:
        if process.poll() is not None:
            assert process.stderr is not None
            pytest.fail(f"the server ended: {process.stderr.read().decode()[-2000:]}")
        with closing(socket.socket()) as tried:
            if not tried.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.05)
    pytest.fail("the server does not listen")
