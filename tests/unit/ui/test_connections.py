# SPDX-License-Identifier: Apache-2.0
"""Other programs of this machine may open connections as they like: the page answers, and has descriptors left."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.ui.pages import Served, served

pytestmark = pytest.mark.xdist_group("cli")
MANY = 1500
DESCRIPTORS = 256  # a desktop's limit


@pytest.fixture(autouse=True)
def room_for_many() -> Iterator[None]:
    """For this end of the connections."""
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < MANY + 500:
        pytest.skip(f"at most {most} descriptors a process here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(least, MANY + 500), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))


def few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))


IDLE = b""
HALF_A_REQUEST = b"POST /view HTTP/1.1\r\nHost: 127.0.0.1\r\n"
HALF_A_BODY = b"POST /view HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n{"


@pytest.mark.parametrize("sent", [IDLE, HALF_A_REQUEST, HALF_A_BODY], ids=["idle", "half a request", "half a body"])
def test_many_connections_of_others_keep_nobody_out(sent: bytes, bundle: Path, state: Path) -> None:
    with served(bundle, state, before=few_descriptors) as found, contextlib.ExitStack() as undo:
        browser = http.client.HTTPConnection("127.0.0.1", found.port, timeout=60)
        undo.callback(browser.close)
        assert looks(found, browser) == 24
        ours = browser.sock
        for number in range(MANY):
            if number % 300 == 0:
                assert looks(found, browser) == 24
            other = socket.create_connection(("127.0.0.1", found.port), timeout=60)
            undo.callback(other.close)
            with contextlib.suppress(ConnectionError):
                other.sendall(sent)
        assert looks(found, browser) == 24
        assert browser.sock is ours  # it was not among those that went
        assert found.does("/add", completion="Soup")["created"]  # over a new connection
        assert len(found.does("/view")["notes"]["new"]) == 25
        if Path("/proc/self/fd").is_dir():
            assert (
                len(os.listdir(f"/proc/{found.process.pid}/fd")) < DESCRIPTORS - 64
            )  # with room for the files of a training
        found.does("/train", run_steps=1)  # a process, its pipes and files of its own
        assert found.does("/view")["training"]["error"] is None


def looks(found: Served, browser: http.client.HTTPConnection) -> int:
    browser.request("POST", "/view", b"{}", found.authorization)
    return len(json.loads(browser.getresponse().read())["done"]["notes"]["new"])


@pytest.mark.slow
@pytest.mark.parametrize("sent", [IDLE, HALF_A_REQUEST, HALF_A_BODY], ids=["idle", "half a request", "half a body"])
def test_a_stranger_that_waits_is_sent_away(sent: bytes, bundle: Path, state: Path) -> None:
    with served(bundle, state) as found, socket.create_connection(("127.0.0.1", found.port), timeout=60) as other:
        other.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            while other.recv(1 << 16):
                pass
