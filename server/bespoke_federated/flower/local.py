# SPDX-License-Identifier: Apache-2.0
"""Flower on one machine: a SuperLink, a SuperNode for each edge, and a run. Plain HTTP, on this machine's own addresses alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bespoke.errors import ConfigError, ServerError
from bespoke_federated.cloud.settings import CloudSettings
from bespoke_federated.cloud.store import rounds_ended

__all__ = ["lead"]

START_SECONDS = 120.0
STOP_SECONDS = 10.0
CONNECTION = "cloud"


def lead(bundle: Path, state: Path, edges: Sequence[Path], settings: Mapping[str, Any]) -> None:
    """Leads the edges of these states until the task has ended. Prints what the cloud tells."""
    if find_spec("flwr") is None:
        raise ConfigError(
            "the command cloud",
            got="no Flower",
            expected="the extra flower",
            next_step="pip install 'bespoke-federated[flower]'",
        )
    settings = {**settings, "least_edges": len(edges)}
    CloudSettings(**settings).check()
    home = state.absolute() / "flower"
    home.mkdir(parents=True, exist_ok=True)
    port = _free_port()
    address = f"127.0.0.1:{port}"
    (home / "config.toml").write_text(f'[superlink.{CONNECTION}]\naddress = "{address}"\ninsecure = true\n')
    scripts = str(Path(sys.executable).parent)
    environment = {
        **os.environ,
        "PATH": scripts + os.pathsep + os.environ.get("PATH", ""),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
    }
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that Flower's processes end too
    link = ["flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port)]
    link += ["--database", str(home / "link.sqlite"), "--disable-runtime-dependency-installation"]
    with _running(link, home / "superlink.log", environment) as process:
        _wait_for(address, process, home / "superlink.log")
        with _nodes(address, edges, home, environment):
            _run(bundle, state, edges, settings, environment)


@contextmanager
def _nodes(address: str, edges: Sequence[Path], home: Path, environment: dict[str, str]) -> Iterator[None]:
    """A SuperNode for each edge."""
    if not edges:
        yield
        return
    node = ["flower-supernode", "--insecure", "--superlink", address, "--port", str(_free_port())]
    node += ["--node-config", f"edge={json.dumps(str(edges[0].absolute()))}"]
    log = home / f"supernode-{len(edges)}.log"
    with _running(node, log, environment), _nodes(address, edges[1:], home, environment):
        yield


def _run(
    bundle: Path, state: Path, edges: Sequence[Path], settings: Mapping[str, Any], environment: dict[str, str]
) -> None:
    config = {"bundle": str(bundle.absolute()), "state": str(state.absolute()), **settings}
    text = " ".join(f"{name.replace('_', '-')}={json.dumps(value)}" for name, value in config.items())
    app = str(files("bespoke_federated.flower") / "app")
    command = ["flwr", "run", app, CONNECTION, "--stream", "--run-config", text]
    subprocess.run(command, env=environment)  # its status says nothing of the run's end
    ended = rounds_ended(state)
    if ended < settings["rounds"]:
        raise ServerError(
            "the run of the cloud",
            got=f"an end after round {ended}",
            expected=f"round {settings['rounds']}",
            next_step="Read what it printed, and run the same command again: it goes on where it was",
        )


@contextmanager
def _running(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is stopped at the end."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until a SuperLink listens."""
    ends = time.monotonic() + START_SECONDS
    host, port = address.split(":")
    while time.monotonic() < ends and process.poll() is None:
        try:
            socket.create_connection((host, int(port)), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise ServerError("Flower's SuperLink", got="no answer", expected="one that listens", next_step=f"Read {log}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port
