# SPDX-License-Identifier: Apache-2.0
"""How the cloud's app reaches its edge: over a socket in the state's folder, which only the user of the server may open.

A call is a line of JSON each way: an `Order`, then a `Standing` or a `Refusal`. Whoever may write the state may call.
"""

from __future__ import annotations

import logging
import os
import socket
import socketserver
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import ValidationError

from bespoke.errors import BespokeError, ConfigError, ServerError
from bespoke_federated.led.documents import Order, Refusal, Standing

if TYPE_CHECKING:  # whoever calls needs none of it
    from bespoke_federated.led.rounds import LedRounds

__all__ = ["SOCKET", "LedSocket", "told"]

SOCKET = "led.sock"
MOST_PATH_BYTES = 103  # of an address on the systems that have the shortest ones
MOST_BYTES = 2**28
ORDER_SECONDS = 60.0  # for a line to come
CALL_SECONDS = 600.0  # steps of many rounds take their time
_log = logging.getLogger("bespoke_federated")


class LedSocket:
    """Takes orders for an edge's rounds while it is open."""

    def __init__(self, rounds: LedRounds, state: Path) -> None:
        path = _checked(state / SOCKET)
        path.unlink(missing_ok=True)  # of a server that was killed: the state has one server at a time
        mask = os.umask(0o177)
        try:
            self._server = _Server(str(path), _Handler)
        finally:
            os.umask(mask)
        self._server.rounds, self._path = rounds, path
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._path.unlink(missing_ok=True)


def told(state: Path, order: Order) -> Standing | Refusal:
    """Gives an order to the edge of a state folder. Raises ServerError where no edge answers."""
    try:
        with socket.socket(socket.AF_UNIX) as connection, suppress(BrokenPipeError):
            connection.settimeout(CALL_SECONDS)
            connection.connect(str(_checked(state / SOCKET)))
            connection.sendall(order.model_dump_json().encode() + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline(MOST_BYTES)
    except OSError as error:
        raise _unreachable(state, error.strerror or type(error).__name__) from None
    if not line.endswith(b"\n"):
        raise _unreachable(state, "no whole answer")
    try:
        return Standing.model_validate_json(line)
    except ValidationError:
        return Refusal.model_validate_json(line)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    rounds: LedRounds


class _Handler(socketserver.StreamRequestHandler):
    timeout = ORDER_SECONDS
    server: _Server

    def handle(self) -> None:
        answer: Standing | Refusal
        try:
            answer = self.server.rounds.obey(Order.model_validate_json(self.rfile.readline(MOST_BYTES)))
        except BespokeError as error:
            _log.warning("%s", error)
            answer = Refusal(object=error.subject, got=error.got, expected=error.expected, next_step=error.next_step)
        except ValidationError as error:
            answer = Refusal(
                object="the cloud's order",
                got=f"what it does not fit: {error.errors()[0]['type']}",
                expected="an Order as JSON",
                next_step="Run the same version of bespoke-federated at cloud and edge",
            )
        except Exception as error:  # a full disk, or whoever called is gone: the cloud asks again
            _log.error("an order could not be followed: %s", type(error).__name__)
            return
        with suppress(OSError):
            self.wfile.write(answer.model_dump_json().encode() + b"\n")


def _checked(path: Path) -> Path:
    if len(os.fsencode(path)) > MOST_PATH_BYTES:
        raise ConfigError(
            "--state",
            got=f"{path}, too long for the socket in it",
            expected=f"at most {MOST_PATH_BYTES} bytes",
            next_step="Name a folder with a shorter path",
        )
    return path


def _unreachable(state: Path, got: str) -> ServerError:
    return ServerError(
        f"the edge of {state}", got=got, expected="an answer", next_step="Start it: bespoke_federated serve --led"
    )
