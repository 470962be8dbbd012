"""Control through the job's storage: any process writes a request, the driver answers it. That needs no port."""

from __future__ import annotations

import time
import uuid
from typing import Any

import msgspec

from penstock.errors import AlreadyExistsError, CorruptFileError, NotFoundError
from penstock.jobs import paths
from penstock.jobs.listing import answers_in, requests_in
from penstock.storage import Storage
from penstock.storage.documents import LIST_BYTES, decode_json, read_small

LOOK_EVERY_S = 0.25
"""How often a driver looks for requests."""


class Request(msgspec.Struct, frozen=True):
    """What is asked of a running job."""

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
            path = paths.answer(identity)
            return decode_json(read_small(storage, path, LIST_BYTES), Answer, path)
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
        found = self.look()
        self._looked = now  # only now: a look that failed is taken again at once
        return found

    def look(self) -> list[Request]:
        """All requests that wait for an answer. From any thread."""
        found = []
        for listed in requests_in(self._storage):
            try:
                request = decode_json(read_small(self._storage, listed.path, LIST_BYTES), Request, listed.path)
            except (CorruptFileError, NotFoundError):
                continue
            if paths.request(request.identity) == listed.path:  # its answer gets the same name
                found.append(request)
        return found

    def answer(self, request: Request, ok: bool, message: str, **result: Any) -> None:
        answer = Answer(request.identity, ok, message, round(time.time() * 1000), result)
        try:
            self._storage.create(paths.answer(request.identity), msgspec.json.encode(answer))
        except AlreadyExistsError:
            pass
        self._storage.delete([paths.request(request.identity)])

    def drop_old(self) -> None:
        """Requests to a driver that is gone are not for this one; answers that were not fetched for an hour go too."""
        self._storage.delete([listed.path for listed in requests_in(self._storage)])
        old = round(time.time() * 1000) - 3_600_000
        self._storage.delete([listed.path for listed in answers_in(self._storage) if listed.modified_ms < old])
