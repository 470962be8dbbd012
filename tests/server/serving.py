"""Servers for tests: the application in this process, asked without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx
from starlette.types import Message

from penstock.query.catalog import Access
from penstock.server.app import make_app
from penstock.server.served_jobs import ServedJobs, Sources

T = TypeVar("T")

BASE = "http://localhost"


@asynccontextmanager
async def asked(*storages: str, sources: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that answers for these storages."""
    given = {"access": Access(all_states=True), **(sources or {})}
    app = make_app(ServedJobs(Sources(storages=storages, **given)), **options)
    incoming: asyncio.Queue[Message] = asyncio.Queue()
    outgoing: asyncio.Queue[Message] = asyncio.Queue()

    async def live() -> None:
        await app({"type": "lifespan", "asgi": {"version": "3.0"}}, incoming.get, outgoing.put)

    running = asyncio.create_task(live())
    await incoming.put({"type": "lifespan.startup"})
    assert (await outgoing.get())["type"] == "lifespan.startup.complete"
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=BASE) as client:
            yield client
    finally:
        await incoming.put({"type": "lifespan.shutdown"})
        await running


def ask(work: Callable[[httpx.AsyncClient], Awaitable[T]], *storages: str, **options: Any) -> T:
    """Do something with a client."""

    async def run() -> T:
        async with asked(*storages, **options) as client:
            return await work(client)

    return asyncio.run(run())
