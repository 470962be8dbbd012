"""Subscriptions: what epochs change, as server-sent events. A subscriber is a place in the line of epochs, and nothing is queued
for it: a slow one finds, when it looks again, that more lies before it, or is told what it missed.

    value    {epoch, watermark, found, value}      of a key: first, and after reset and missed
    change   {epoch, after, watermark, changes}    rows of what an epoch changed; long ones in parts, of which the last has an id
    epoch    {epoch, after, watermark}             nothing changed up to this epoch
    reset    {epoch, after, to}                    the job went back to an epoch before what the subscriber has seen
    missed   {epoch, after}                        what changed between these epochs cannot be told any more: read it anew

Law: `after` of an event is `epoch` of the one before it: in order, they lose nothing and repeat nothing. The id of an event is
its epoch; a connection that says `Last-Event-ID`, or `from=`, goes on behind it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Epoch
from penstock.jobs.manifest import Manifest
from penstock.query.answers import entries_of
from penstock.query.changes import Change, Missed, Reset, Step, changes_of
from penstock.query.errors import BadRequestError, EpochGoneError, QueryError
from penstock.query.reading import Reading
from penstock.query.state_views import StateView
from penstock.server.endpoints import Answer, Call, Endpoint, Events, Parameter
from penstock.server.served_jobs import ServedJob

ROWS = 500
"""In one event."""
SIGN_OF_LIFE_S = 5.0

_encode = msgspec.json.Encoder(enc_hook=str).encode


async def subscribe(call: Call) -> Answer | Events:
    job = call.jobs[call.path["job"]]
    seen = call.query.get("from", call.headers.get("last-event-id"))
    if seen is not None and not (isinstance(seen, int) or (seen.isascii() and seen.isdigit() and len(seen) < 19)):
        raise BadRequestError("Last-Event-ID is no epoch")
    with await job.reading() as reading:
        watched = Watched(job, reading, call.path["step"], call.query.get("state"), call.query.get("key"))
    return Events(job.streams.held(call.caller.name, watched.events(None if seen is None else Epoch(int(seen)))))


class Watched:
    """What a subscriber wants to know of: a key, a state, or all states of a step."""

    def __init__(self, job: ServedJob, reading: Reading, step: str, state: str | None, key: str | None) -> None:
        self._job = job
        self._step = step
        self._key: bytes | None = None
        self._at: Manifest = reading.manifest
        self._told: Epoch = reading.epoch
        if state is None:
            if key is not None:
                raise BadRequestError("key= was given without state=", hint="say of which state")
            views = [job.catalog.view(reading, step, name) for name in job.catalog.allowed(reading.manifest, step)]
            self._views = [view for view in views if not view.kind.many_keys]
        else:
            view = job.catalog.view(reading, step, state)
            self._views = [view]
            if view.kind.many_keys or (key is not None and view.kind.by_time):
                raise BadRequestError(
                    f"state {state!r} of step {step!r} keeps keys together, and cannot be subscribed to",
                    hint="ask for it with least= the epoch after the one that you have",
                )
            if key is not None:
                self._key = view.key_of_text(key)

    async def events(self, seen: Epoch | None) -> AsyncIterator[bytes]:
        """Without an end; what goes wrong is the last one."""
        try:
            job = self._job
            async for event in self._begin(seen):
                yield event
            told = time.monotonic()
            while True:
                now = await asyncio.to_thread(job.reader.steps_since, self._at)
                if isinstance(now, (Missed, Reset)):
                    async for event in self._anew(now):
                        yield event
                    told = time.monotonic()
                    continue
                for step in now:
                    changed = False
                    async for event in self._changes(step):
                        changed = True
                        yield event
                    after, self._at = self._told, step.now
                    if changed:
                        self._told, told = step.now.epoch, time.monotonic()
                    elif time.monotonic() - told > SIGN_OF_LIFE_S:
                        self._told, told = step.now.epoch, time.monotonic()
                        yield self._event("epoch", step.now, {"after": after}, id=True)
                if not now:
                    if time.monotonic() - told > SIGN_OF_LIFE_S:
                        told = time.monotonic()
                        yield b": still here\n\n"
                    await job.turn(SIGN_OF_LIFE_S)
        except QueryError as error:
            yield b"event: error\ndata: " + _encode({"code": error.code, "message": error.what}) + b"\n\n"

    async def _begin(self, seen: Epoch | None) -> AsyncIterator[bytes]:
        if seen is not None:
            try:
                self._at = await asyncio.to_thread(self._job.reader.manifest_of, seen)
                self._told = seen
                return
            except EpochGoneError:
                pass
        with await self._job.reading() as reading:
            self._at, self._told = reading.manifest, reading.epoch
            if seen is not None and seen != reading.epoch:
                back = self._job.reader.went_back(reading.manifest, seen)
                told = {"after": seen} if back is None else {"after": seen, "to": back}
                yield self._event("missed" if back is None else "reset", reading.manifest, told, id=self._key is None)
            if self._key is not None:
                yield self._value(reading)
            elif seen is None:
                yield self._event("epoch", reading.manifest, {"after": reading.epoch}, id=True)

    async def _anew(self, now: Missed | Reset) -> AsyncIterator[bytes]:
        """Tell what happened, and go on from the newest epoch."""
        with await self._job.reading(least=now.now.epoch, wait_s=10.0) as reading:
            told: dict[str, Any] = {"after": self._told}
            if isinstance(now, Reset):
                told["to"] = now.to
            self._at, self._told = reading.manifest, reading.epoch
            yield self._event("reset" if isinstance(now, Reset) else "missed", reading.manifest, told, id=self._key is None)
            if self._key is not None:
                yield self._value(reading)

    async def _changes(self, step: Step) -> AsyncIterator[bytes]:
        """What an epoch changed, in events of a few rows; each is held back until it is known whether it is the last."""
        held: list[dict[str, Any]] | None = None
        for view in self._views:
            changes = await asyncio.to_thread(changes_of, self._job.reader.deltas, step, view.number, self._key or b"")
            for at in range(0, len(changes), ROWS):
                if held is not None:
                    yield self._event("change", step.now, {"after": self._told, "changes": held, "more": True})
                held = _rows(view, changes[at : at + ROWS])
        if held is not None:
            yield self._event("change", step.now, {"after": self._told, "changes": held, "more": False}, id=True)

    def _value(self, reading: Reading) -> bytes:
        (view,), encoded = self._views, self._key
        assert encoded is not None
        with reading.lock:
            entries = entries_of(reading, view, encoded)
            value = view.value(reading, encoded, entries) if entries else None
        return self._event("value", reading.manifest, {"found": bool(entries), "value": value}, id=True)

    def _event(self, kind: str, manifest: Manifest, told: dict[str, Any], *, id: bool = False) -> bytes:
        time_ms = manifest.watermarks.get(self._step)
        watermark = None if time_ms in (None, MIN_WATERMARK, MAX_WATERMARK) else time_ms
        data = _encode({"epoch": manifest.epoch, "watermark": watermark, **told})
        return f"event: {kind}\n".encode() + (f"id: {manifest.epoch}\n".encode() if id else b"") + b"data: " + data + b"\n\n"


def _rows(view: StateView, changes: list[Change]) -> list[dict[str, Any]]:
    """Changes as rows: of a deleted entry what it was of, and `deleted`."""
    there = [(key, value) for key, value in changes if value is not None]
    gone = [key for key, value in changes if value is None]
    rows = [{"state": view.info.name, **row} for row in (view.rows(there) if there else [])]
    return rows + [{"state": view.info.name, "deleted": True, **of} for of in view.keys_shown(gone)]


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/jobs/{job}/steps/{step}/changes",
        name="subscribe",
        about="What epochs change of a key, of a state, or of all states of a step, as server-sent events.",
        handler=subscribe,
        parameters=(
            Parameter(name="state", about="Only of this state."),
            Parameter(name="key", about="Only of this key."),
            Parameter(name="from", kind="integer", about="Go on behind this epoch; so does the header Last-Event-ID."),
        ),
        content_type="text/event-stream",
        errors=(429,),
    ),
)
