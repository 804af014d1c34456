# SPDX-License-Identifier: Apache-2.0
"""The page's server. It listens on the loopback interface only and gives data only to requests with the token.

The token is in the fragment of the link that `bespoke ui` prints, and browsers never send a fragment. The page keeps the token for
its tab and sends it as a header with each request for data. Anybody may load the page itself, which has no data. A cookie would not
do: browsers send it to every server on this machine, whatever its port. Other names for this machine are refused (DNS rebinding).
Pages of other sites can neither send the header nor read an answer.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from bespoke.errors import BespokeError, ConfigError
from bespoke.ui.connections import ACCEPTED_AT_ONCE, Connections
from bespoke.ui.desk import Desk

__all__ = ["AnswerResponse", "application", "listening", "serve"]

HOST = "127.0.0.1"
WAITING = 1024  # connections in the system's queue, where they cost this process nothing
LARGEST_REQUEST = 1 << 20  # bytes
IDLE_SECONDS = 60  # an idle connection stays open this long, because a background tab asks once a minute
_HERE = Path(__file__).parent
_FILES = {
    "/": ("page.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/answers.js": ("answers.js", "text/javascript"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src data:; frame-ancestors 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def listening(port: int) -> socket.socket:
    """A socket that listens on the loopback interface. Port 0 means any free port."""
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind((HOST, port))
        opened.listen()  # from here on a browser can connect, and waits until `serve` answers
    except OSError as error:
        opened.close()
        raise ConfigError(
            "--port",
            got=f"{port}: {error.strerror}",
            expected="a free port",
            next_step="Give another one, or 0 for any",
        ) from None
    return opened


def serve(desk: Desk, opened: socket.socket, token: str) -> None:
    """Serves the page until Ctrl-C or SIGTERM."""
    connections = Connections()
    config = uvicorn.Config(
        application(desk, opened.getsockname()[1], token, connections.trust),
        log_level="warning",
        timeout_graceful_shutdown=2,
        server_header=False,
        http=connections.protocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        timeout_keep_alive=IDLE_SECONDS,
        backlog=ACCEPTED_AT_ONCE,
    )
    _Server(config).run(sockets=[opened])


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for opened in sockets or ():
            opened.listen(
                WAITING
            )  # asyncio used `backlog`, the number that it accepts at once, for the queue's length too


Client = tuple[str, int] | None  # the other end of a connection


def application(desk: Desk, port: int, token: str, let_in: Callable[[Client], None]) -> ASGIApp:
    """The page's application. It calls `let_in` with the address of each request that has the token."""

    def endpoint_of(action: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
        return _answered(lambda given: JSONResponse({"done": action(given)}))

    def ask(given: dict[str, Any]) -> Response:
        return AnswerResponse(desk.ask(_text(given, "question"), base=given.get("base") is True))

    def train(given: dict[str, Any]) -> None:
        run_steps = given.get("run_steps")
        desk.train(int(run_steps) if isinstance(run_steps, int) and run_steps else None)

    def add(given: dict[str, Any]) -> Any:
        return desk.add(_text(given, "prompt"), _text(given, "completion"), must_know=given.get("must_know") is True)

    actions: dict[str, Callable[[dict[str, Any]], Any]] = {
        "/view": desk.view,
        "/add": add,
        "/forget": lambda given: desk.forget(_text(given, "id")),
        "/correct": lambda given: desk.correct(_text(given, "question"), _text(given, "better")),
        "/train": train,
        "/stop": lambda _: desk.stop(),
        "/rollback": lambda _: desk.rollback(),
        "/reset": lambda _: desk.reset(),
    }
    routes = [
        *(Route(path, _file(name, kind)) for path, (name, kind) in _FILES.items()),
        *(Route(path, endpoint_of(action), methods=["POST"]) for path, action in actions.items()),
        Route("/ask", _answered(ask), methods=["POST"]),
    ]
    return Door(Starlette(routes=routes), port, token, let_in)


class Door:
    """Refuses requests without the token, and requests under another name than this machine's own."""

    def __init__(self, inside: ASGIApp, port: int, token: str, let_in: Callable[[Client], None]) -> None:
        self._inside, self._let_in = inside, let_in
        self._hosts = (f"{HOST}:{port}", f"localhost:{port}")
        self._authorization = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = (self._refusal(Request(scope)) if scope["type"] == "http" else None) or self._inside

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                ours = ((name.lower().encode(), text.encode()) for name, text in _HEADERS.items())
                message["headers"] = [*message["headers"], *ours]
            await send(message)

        return await answer(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        """The answer to a request that is refused, None for one that may go on."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if host not in self._hosts or (origin is not None and origin != f"http://{host}"):
            return PlainTextResponse(
                "This page is for a browser on this machine, under the address that bespoke ui printed.", 403
            )
        if secrets.compare_digest(request.headers.get("authorization", "").encode(), self._authorization):
            self._let_in(request.scope.get("client"))
            return None
        if request.scope["path"] in _FILES:
            return None  # the page itself holds no data
        return PlainTextResponse("Open the link that bespoke ui printed: it has the token.", 403)


def _file(name: str, kind: str) -> Callable[..., Any]:
    content = (_HERE / name).read_bytes()  # read once, so a request takes neither a descriptor nor a thread

    async def endpoint(_: Request) -> Response:
        return Response(content, media_type=f"{kind}; charset=utf-8")

    return endpoint


async def _object_of(request: Request) -> dict[str, Any] | None:
    """The JSON object that a request holds, None if it is not one or is too large."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_REQUEST:
            return None
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _answered(answer: Callable[[dict[str, Any]], Response]) -> Callable[..., Any]:
    """An endpoint that takes a JSON object. It answers {"error": words} if the action was refused."""

    async def endpoint(request: Request) -> Response:
        given = await _object_of(request)
        if given is None:
            return JSONResponse({"error": "The request: got something else; expected a small JSON object."}, 400)
        try:
            return await run_in_threadpool(answer, given)  # the model's calls wait for locks and for the disk
        except BespokeError as error:
            return JSONResponse({"error": str(error)}, 409)

    return endpoint


class Pieces(Protocol):
    """An answer that is being given. `close` ends it."""

    def __iter__(self) -> Iterator[str]: ...
    def close(self) -> None: ...


class AnswerResponse(StreamingResponse):
    """Streams an answer, and ends it when the browser leaves. The garbage collector would end it much later."""

    def __init__(self, pieces: Pieces) -> None:
        super().__init__(_lines(pieces), media_type="application/x-ndjson")
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await run_in_threadpool(self._pieces.close)


def _lines(pieces: Pieces) -> Iterator[str]:
    """Yields one JSON object a line: the next piece of the answer, or the error that ended it."""
    try:
        for piece in pieces:
            yield json.dumps({"text": piece}) + "\n"
    except BespokeError as error:
        yield json.dumps({"error": str(error)}) + "\n"


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    return value if isinstance(value, str) else ""
