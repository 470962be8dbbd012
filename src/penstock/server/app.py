"""The ASGI application: every request goes through the guard, to its endpoint, and out as JSON.

    host and origin → token → rate → route → role → parameters → body → handler → answer

Law: a request gets one answer, which is one of its endpoint's; what goes wrong inside is logged, and not told.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.query.errors import (
    BadRequestError,
    ForbiddenError,
    QueryError,
    TooManyRequestsError,
    TooMuchError,
    UnknownRouteError,
)
from penstock.server.endpoints import API, Answer, Call, Caller, Endpoint, Events
from penstock.server.guard.audit import Audit
from penstock.server.guard.hosts import Hosts
from penstock.server.guard.limits import Limits, Rates
from penstock.server.guard.tokens import Tokens
from penstock.server.openapi import openapi
from penstock.server.problems import answer_to
from penstock.server.routes import ENDPOINTS
from penstock.server.served_jobs import ServedJobs

HEADERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "private, no-cache",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}

encode = msgspec.json.Encoder(enc_hook=str).encode


class WrongMethodError(QueryError):
    code = "wrong_method"
    status = 405


class WrongTypeError(QueryError):
    code = "wrong_type"
    status = 415


class TooSlowError(QueryError):
    code = "too_slow"
    status = 408


class Guard:
    """Who may enter. The caller is in the scope of who does."""

    def __init__(self, app: ASGIApp, *, hosts: Hosts, tokens: Tokens, limits: Limits, audit: Audit) -> None:
        self._app = app
        self._hosts = hosts
        self._tokens = tokens
        self._rates = Rates(limits.rate, limits.burst)
        self._audit = audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        peer = scope["client"][0] if scope.get("client") else ""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        scope["penstock.headers"] = headers
        caller = Caller(name="", role="anyone")
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            try:
                self._hosts.check(headers.get("host"), headers.get("origin"), headers.get("sec-fetch-site"))
                caller = self._tokens.caller(headers.get("authorization"))
                self._limit(caller.name if self._tokens else peer)
            except QueryError as error:
                await _response(answer_to(error))(scope, receive, noted)
                return
            scope["penstock.caller"] = caller
            await self._app(scope, receive, noted)
        finally:
            ms = (time.monotonic() - began) * 1000
            who = {"caller": caller.name, "role": caller.role, "peer": peer}
            self._audit.note(method=scope["method"], path=scope["path"], status=status, ms=ms, **who)

    def _limit(self, caller: str) -> None:
        wait_s = self._rates.wait_s(caller)
        if wait_s:
            error = TooManyRequestsError("there are too many requests of yours", hint="wait a moment; ask for many keys at once")
            error.retry_after_s = max(1.0, wait_s)
            raise error


def make_app(
    jobs: ServedJobs,
    *,
    tokens: Tokens | None = None,
    host_names: Iterable[str] = (),
    limits: Limits | None = None,
    audit: Audit | None = None,
    endpoints: Iterable[Endpoint] = ENDPOINTS,
) -> ASGIApp:
    """The application that answers for some jobs."""
    endpoints = tuple(endpoints)
    limits = limits or Limits()
    document = encode(openapi(endpoints))

    async def describe(call: Call) -> Answer:
        return Answer(encoded=document)

    itself = Endpoint(method="GET", path="/openapi.json", name="openapi", about="This document.", handler=describe)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        jobs.start()
        try:
            yield
        finally:
            await jobs.stop()

    routes = [_route(endpoint, jobs, limits) for endpoint in (itself, *endpoints)]

    async def not_found(request: Request, error: Exception) -> Response:
        return _response(answer_to(UnknownRouteError("there is nothing here", hint=f"see {API}/openapi.json")))

    async def wrong_method(request: Request, error: Exception) -> Response:
        given = getattr(error, "headers", None) or {}
        answer = answer_to(WrongMethodError("the route does not know this method"))
        response = _response(answer)
        response.headers.update({name.lower(): value for name, value in given.items()})
        return response

    made = Starlette(routes=routes, lifespan=lifespan, exception_handlers={404: not_found, 405: wrong_method})
    made.router.redirect_slashes = False
    return Guard(made, hosts=Hosts(host_names), tokens=tokens or Tokens(), limits=limits, audit=audit or Audit())


def _route(endpoint: Endpoint, jobs: ServedJobs, limits: Limits) -> Route:
    decode: Callable[[bytes], Any] | None = None
    if endpoint.body is not None:
        decode = msgspec.json.Decoder(endpoint.body).decode

    note, name = jobs.measures.note, endpoint.name

    async def handle(request: Request) -> Response:
        began = time.perf_counter()
        try:
            caller: Caller = request.scope["penstock.caller"]
            if not caller.may(endpoint.role):
                raise ForbiddenError(f"this needs the role {endpoint.role}")
            query = endpoint.read_query(_query(request.scope["query_string"])) if request.scope["query_string"] else {}
            body = None if decode is None else await _body(request, limits, decode)
            call = Call(
                jobs=jobs,
                caller=caller,
                path=request.path_params,
                query=query,
                body=body,
                headers=request.scope["penstock.headers"],
            )
            answered = await endpoint.handler(call)
        except Exception as error:
            answered = answer_to(error)
        note(name, answered.status if isinstance(answered, Answer) else 200, time.perf_counter() - began)
        return _response(answered)

    return Route(endpoint.root + endpoint.path, handle, methods=[endpoint.method], name=endpoint.name)


def _query(given: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(given.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50)
    except ValueError:
        raise BadRequestError("the query of the URL cannot be read") from None


async def _body(request: Request, limits: Limits, decode: Callable[[bytes], Any]) -> Any:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise WrongTypeError("the body must be application/json")
    too_much = TooMuchError(f"the body is larger than {limits.body_bytes} bytes")
    declared = request.headers.get("content-length", "0")
    if not declared.isdigit() or len(declared) > 18 or int(declared) > limits.body_bytes:
        raise too_much
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_s):
            async for part in request.stream():
                size += len(part)
                if size > limits.body_bytes:
                    raise too_much
                parts.append(part)
    except TimeoutError:
        raise TooSlowError(f"the body did not come within {limits.body_s:g} seconds") from None
    try:
        return decode(b"".join(parts))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequestError("the body is not what this route takes", detail=str(error)[:200]) from None


def _response(answered: Answer | Events) -> Response:
    if isinstance(answered, Events):
        return StreamingResponse(answered.events, media_type="text/event-stream", headers={**HEADERS, "x-accel-buffering": "no"})
    headers = {**HEADERS, **answered.headers}
    if answered.tag:
        headers["etag"] = answered.tag
    if answered.status == 304:
        return Response(status_code=304, headers=headers)
    body = answered.encoded if answered.encoded is not None else encode(answered.body)
    return Response(body, status_code=answered.status, headers=headers, media_type=answered.content_type)
