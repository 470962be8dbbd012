"""Control through the job's storage: somebody writes a request, the driver answers it. No port is open."""

from __future__ import annotations

import time
import uuid
from typing import Any

import msgspec

from penstock import paths
from penstock.errors import AlreadyExistsError, NotFoundError
from penstock.storage import Storage

LOOK_EVERY_S = 0.25
"""How often a driver looks for requests."""


class Request(msgspec.Struct, frozen=True):
    """What somebody asks of a running job."""

    identity: str
    kind: str
    created_ms: int
    options: dict[str, Any] = {}


class Answer(msgspec.Struct, frozen=True):
    """What the driver says to it."""

    identity: str
    ok: bool
    message: str
    answered_ms: int
    result: dict[str, Any] = {}


def ask(storage: Storage, kind: str, **options: Any) -> str:
    """Write a request; returns its id."""
    identity = f"{round(time.time() * 1000):013d}-{uuid.uuid4().hex[:8]}"
    storage.create(paths.request(identity), msgspec.json.encode(Request(identity, kind, round(time.time() * 1000), options)))
    return identity


def wait_for_answer(storage: Storage, identity: str, timeout: float) -> Answer | None:
    """The driver's answer; None if there was none in time."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return msgspec.json.decode(storage.read(paths.answer(identity)), type=Answer)
        except NotFoundError:
            if time.monotonic() > deadline:
                return None
            time.sleep(0.05)


class Inbox:
    """The driver's side: looks for requests now and then, and answers them."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._looked = 0.0

    def pending(self) -> list[Request]:
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY_S:
            return []
        self._looked = now
        found = []
        for listed in self._storage.list(paths.REQUESTS):
            try:
                found.append(msgspec.json.decode(self._storage.read(listed.path), type=Request))
            except (msgspec.MsgspecError, NotFoundError):
                continue
        return found

    def answer(self, request: Request, ok: bool, message: str, **result: Any) -> None:
        answer = Answer(request.identity, ok, message, round(time.time() * 1000), result)
        try:
            self._storage.create(paths.answer(request.identity), msgspec.json.encode(answer))
        except AlreadyExistsError:
            pass
        self._storage.delete([paths.request(request.identity)])

    def drop_old(self) -> None:
        """Requests to a driver that is gone are not for this one; answers nobody fetched for an hour go too."""
        self._storage.delete([listed.path for listed in self._storage.list(paths.REQUESTS)])
        old = round(time.time() * 1000) - 3_600_000
        self._storage.delete([listed.path for listed in self._storage.list(paths.ANSWERS) if listed.modified_ms < old])
