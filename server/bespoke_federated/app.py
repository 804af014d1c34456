# SPDX-License-Identifier: Apache-2.0
"""The server's HTTP. An answer of an error has `object`, `got`, `expected` and `next_step`; no answer and no log repeats a body."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from pydantic import BaseModel
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bespoke.errors import BespokeError
from bespoke.rules.round_documents import DeviceDocument
from bespoke.rules.signed_request import COUNTER_HEADER, DEVICE_HEADER, SIGNATURE_HEADER
from bespoke_federated.edge import Edge, Enrolled, Enrolment
from bespoke_federated.edge import Request as SignedRequest
from bespoke_federated.limits import Buckets, network_of
from bespoke_federated.problems import RequestError, problem
from bespoke_federated.signing import claim_of

__all__ = ["application"]

TICK_SECONDS = 1.0  # between two looks at the deadline
_log = logging.getLogger("bespoke_federated")
Answer = TypeVar("Answer")


class Problem(BaseModel):
    """What an error says."""

    object: str
    got: str
    expected: str
    next_step: str


class Health(BaseModel):
    """Whether the server runs, and where its rounds are."""

    task: str
    rounds_ended: int
    done: bool


def application(edge: Edge) -> FastAPI:
    """The application of a server. It looks at deadlines while it runs."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        ticking = asyncio.create_task(_tick(edge))
        yield
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking

    app = FastAPI(title="bespoke-federated", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.add_middleware(_Counted, edge=edge)
    app.add_exception_handler(BespokeError, _request_error)
    app.add_exception_handler(HTTPException, _framework_error)
    app.add_exception_handler(Exception, _unexpected_error)
    errors: dict[int | str, dict[str, Any]] = {
        status: {"model": Problem} for status in (400, 401, 403, 404, 409, 413, 429)
    }

    @app.post("/v1/enrol", response_model=Enrolled, responses=errors, openapi_extra=_signed_with(Enrolment))
    async def enrol(request: Request) -> Response:
        """Lets a device in. Its new key signs the request."""
        given = await _worked(request, edge, edge.enrol)
        return JSONResponse(given.model_dump())

    @app.post(
        "/v1/ask",
        responses={**errors, 200: {"description": "a signed RoundDocument"}},
        openapi_extra=_signed_with(DeviceDocument),
    )
    async def ask(request: Request) -> Response:
        """Takes a device's numbers, and answers with the rounds behind it and what to measure."""
        given = await _worked(request, edge, edge.ask)
        return Response(given, media_type="application/json", background=BackgroundTask(_advance, edge))

    @app.get("/v1/files/{sha256}", responses=errors, response_class=FileResponse, openapi_extra=_signed_with(None))
    async def file(request: Request, sha256: str) -> Response:
        """Gives bytes of a file that a document named. It takes a Range."""
        record = await _worked(request, edge, lambda signed: edge.file(signed, sha256))
        return FileResponse(edge.store.folder / record.path, media_type="application/octet-stream")

    @app.get("/v1/health")
    async def health() -> Health:
        """Tells that the server runs."""
        return await run_in_threadpool(_health, edge)

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Figures in Prometheus' text format."""
        return PlainTextResponse(await run_in_threadpool(edge.metrics.text, edge.store, edge.federation))

    return app


def _health(edge: Edge) -> Health:
    last = edge.store.last_ended()
    return Health(task=edge.federation.task, rounds_ended=last.number if last else 0, done=edge.rounds.done)


async def _worked(request: Request, edge: Edge, work: Callable[[SignedRequest], Answer]) -> Answer:
    """Reads a signed request and gives it to `work`, on another thread."""
    claim = claim_of(request.headers)
    body = await _body_of(request, edge.limits.body_bytes)
    path = request.scope.get("raw_path", request.scope["path"].encode()).partition(b"?")[0].decode("latin-1")
    if query := request.scope["query_string"].decode("latin-1"):
        path += f"?{query}"
    return await run_in_threadpool(work, SignedRequest(request.method, path, body, claim))


async def _body_of(request: Request, most: int) -> bytes:
    """The body. Raises RequestError as soon as it is too large."""
    too_large = problem(413, "the body")
    expected, next_step = f"at most {most} bytes", "Send what the device core gave, unchanged"
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > most:
        raise too_large("a larger one", expected, next_step)
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > most:
            raise too_large("a larger one", expected, next_step)
        pieces.append(piece)
    return b"".join(pieces)


class _Counted:
    """Counts requests, and lets no address send too many."""

    def __init__(self, app: ASGIApp, edge: Edge) -> None:
        self._app, self._metrics = app, edge.metrics
        self._of_addresses = Buckets(edge.limits.address_requests, "the address", edge.clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        came = went = status = 0

        async def receiving() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            return message

        async def sending(message: Message) -> None:
            nonlocal went, status
            status = message.get("status", status)
            went += len(message.get("body", b""))
            await send(message)

        try:
            try:
                self._of_addresses.take(network_of(scope["client"][0] if scope.get("client") else ""))
            except RequestError as error:
                await _request_error(None, error)(scope, receiving, sending)
            else:
                await self._app(scope, receiving, sending)
        finally:
            self._metrics.request(status, came, went)


async def _tick(edge: Edge) -> None:
    """Ends rounds whose deadline passes while nobody asks."""
    while True:
        await asyncio.sleep(TICK_SECONDS)
        await run_in_threadpool(_advance, edge)


def _advance(edge: Edge) -> None:
    try:
        edge.rounds.advance()
    except Exception as error:  # a full disk: it may have room at the next try
        _log.error("a round could not end: %s", type(error).__name__)


def _request_error(_: Request | None, error: Exception) -> JSONResponse:
    assert isinstance(error, BespokeError)
    status, headers = (error.status, error.headers) if isinstance(error, RequestError) else (500, {})
    if status >= 500:
        _log.error("%s", error)
    problem_document = Problem(object=error.subject, got=error.got, expected=error.expected, next_step=error.next_step)
    return JSONResponse(problem_document.model_dump(), status, headers)


def _framework_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    problem_document = Problem(
        object="the request",
        got="a method or a path that is not there",
        expected="one of /openapi.json",
        next_step="Send it to one of these",
    )
    return JSONResponse(problem_document.model_dump(), error.status_code, error.headers)


def _unexpected_error(_: Request, error: Exception) -> JSONResponse:
    _log.error("a request failed: %s", type(error).__name__)
    problem_document = Problem(object="the server", got="a fault", expected="none", next_step="Try again later")
    return JSONResponse(problem_document.model_dump(), 500)


def _signed_with(body: type[BaseModel] | None) -> dict[str, Any]:
    """What the OpenAPI document says of a signed request: its headers, and the schema of its body."""
    headers = {
        DEVICE_HEADER: "sha256 of the device's public key",
        COUNTER_HEADER: "larger than the last one",
        SIGNATURE_HEADER: "base64url of r and s (ES256)",
    }
    extra: dict[str, Any] = {
        "parameters": [
            {"name": name, "in": "header", "required": True, "description": text, "schema": {"type": "string"}}
            for name, text in headers.items()
        ]
    }
    if body is not None:
        schema = body.model_json_schema()
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": _inlined(schema, schema)}}}
    return extra


def _inlined(part: Any, whole: dict[str, Any]) -> Any:
    """A schema without references, which would not resolve inside an OpenAPI document."""
    if isinstance(part, list):
        return [_inlined(one, whole) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(whole["$defs"][part["$ref"].rsplit("/", 1)[1]], whole)
    return {key: _inlined(one, whole) for key, one in part.items() if key != "$defs"}
