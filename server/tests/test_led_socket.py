# SPDX-License-Identifier: Apache-2.0
"""The socket of a led edge: who may call, what comes of a bad call, and an edge that is killed at any statement of an order."""

from __future__ import annotations

import logging
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from bespoke_federated.edge import Edge
from bespoke_federated.led.documents import Opened, Order, Refusal, Standing
from bespoke_federated.led.rounds import LedRounds
from bespoke_federated.led.socket import SOCKET, LedSocket, told
from bespoke_federated.settings import RoundSettings
from federation_client import Served
from led_edges import rounds_of, take_part
from small_bundle import PRIVATE, by_hand
from test_led import ended, numbers_of, order, steps

from bespoke.bundle.reader import read_bundle
from bespoke.errors import ConfigError, ServerError

OPENED = Opened(number=1, groups=4, each=1, first_group=0, own_groups=2, devices=2)


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


@pytest.mark.parametrize("statement", range(1, 60, 4))
def test_an_edge_that_is_killed_anywhere_answers_the_same(
    serve: Callable[..., Served], bundle: Path, tmp_path: Path, statement: int
) -> None:
    """Orders come again until they are answered. The process ends before the n-th statement, in a transaction or between two."""
    edge = serve(led=True)
    sent = take_part_in_first(edge)
    edge.close()
    taken = [steps(sent), [0.0, 0.25, 0.0, 0.0]]
    orders = [
        order(opened=OPENED, close=True),
        order(ended=(ended(1, taken),)),
        order(opened=OPENED.model_copy(update={"number": 2})),
        order(ended=(ended(2, taken, half=False, counted=False),)),
    ]
    process = os.fork()
    if not process:
        try:
            obeyed_until_killed(bundle, tmp_path / "state", orders, statement)
        finally:
            os._exit(1)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 9
    again = serve(led=True)
    answers = [rounds_of(again).obey(one) for one in (orders[0], *orders) if may_come(again, one)]
    assert (answers[-1].ended, answers[-1].adapter) == (2, by_hand(taken))
    assert again.edge.store.totals() == {"counted": 2, "late": 0, "most_rounds": 1}
    assert dict(again.edge.store.numbers(1)) == {first: [number] for first, number in sent.items()}


def take_part_in_first(edge: Served) -> dict[int, float]:
    rounds_of(edge).obey(order(opened=OPENED))
    return take_part([edge.enrolled() for _ in range(2)], numbers_of(1), 2)


def may_come(edge: Served, one: Order) -> bool:
    """Whether a cloud would send this: it opens no round that the edge has said to have ended."""
    last = edge.edge.store.last_ended()
    return one.opened is None or one.opened.number > (last.number if last else 0)


def obeyed_until_killed(bundle: Path, state: Path, orders: list[Order], statement: int) -> None:
    logging.disable()
    edge = Edge(read_bundle(bundle), PRIVATE, state, RoundSettings(half_every=0), led=True)
    left = [statement]
    run = edge.store._database.set_trace_callback
    run(lambda _: left.__setitem__(0, left[0] - 1) or (os._exit(9) if left[0] <= 0 else None))
    assert isinstance(edge.rounds, LedRounds)
    for one in orders:
        edge.rounds.obey(one)
    while True:  # all orders took fewer statements
        edge.rounds.obey(order())
        threading.Event().wait(0)
