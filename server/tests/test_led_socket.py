# SPDX-License-Identifier: Apache-2.0
"""The socket of a led edge: who may call, and what comes of a bad call."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bespoke_federated.led.documents import Refusal, Standing
from bespoke_federated.led.socket import SOCKET, LedSocket, told
from federation_client import Served
from led_edges import rounds_of
from small_bundle import by_hand
from test_led import order
from tests.support.federation_key import PRIVATE

from bespoke.errors import ConfigError, ServerError


def test_only_the_user_of_the_server_may_call(serve: Callable[..., Served], tmp_path: Path) -> None:
    edge = serve(led=True)
    state = tmp_path / "state"
    (state / SOCKET).write_text("of a server that was killed")
    with LedSocket(rounds_of(edge), state):
        mode = os.stat(state / SOCKET).st_mode
        assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
        standing = told(state, order())
        assert isinstance(standing, Standing)
        assert standing.adapter == by_hand([])
        assert isinstance(told(state, order(task="others")), Refusal)
    with pytest.raises(ServerError, match="serve --led"):
        told(state, order())


def test_a_bad_call_is_refused_and_the_next_one_answered(serve: Callable[..., Served], tmp_path: Path) -> None:
    edge, state = serve(led=True), tmp_path / "state"
    with LedSocket(rounds_of(edge), state):
        for line in (b"\n", b"{}\n", b"\xff\n", b'{"task": ' + b"[" * 9999 + b"\n", b"no end"):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(state / SOCKET))
                connection.sendall(line)
                connection.shutdown(socket.SHUT_WR)
                answer = connection.makefile("rb").readline()
            assert Refusal.model_validate_json(answer).object == "the cloud's order"
        assert isinstance(told(state, order()), Standing)


def test_a_path_that_no_socket_can_have_is_refused(serve: Callable[..., Served]) -> None:
    edge = serve(state="long" * 30, led=True)
    with pytest.raises(ConfigError, match="shorter path"):
        LedSocket(rounds_of(edge), edge.edge.store.folder)


def test_serve_takes_orders_and_refuses_what_the_cloud_decides(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(PRIVATE)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "bespoke_federated", "serve", str(bundle), "--key", str(tmp_path / "key.pem")]
    command += ["--state", str(tmp_path / "state"), "--port", port, "--led"]
    refused = subprocess.run([*command, "--rate", "1"], capture_output=True, text=True)
    assert (refused.returncode, "--rate: got settings" in refused.stderr) == (2, True)
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        standing = started(tmp_path / "state", process)
    finally:
        process.terminate()
        process.wait(20)
    assert standing.ended == 0


def started(state: Path, process: subprocess.Popen[bytes]) -> Standing:
    ends = time.monotonic() + 30
    while True:
        try:
            standing = told(state, order())
            assert isinstance(standing, Standing)
            return standing
        except ServerError:
            assert process.poll() is None
            assert time.monotonic() < ends
            time.sleep(0.1)
