"""State by key: one, many at once, and entries of many keys in pages."""

from __future__ import annotations

import json
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from penstock.ids import Epoch
from penstock.query.answers import MOST_ENTRIES, MOST_KEYS, many_values, one_value, shown_watermark, value_of
from penstock.query.errors import BadRequestError
from penstock.query.key_spans import Spans, beginning, between, everything
from penstock.query.scans import cursor_of, page, rows_of, spans_for
from penstock.query.state_views import StateView
from penstock.server.endpoints import Answer, Call, Endpoint, Parameter
from penstock.server.routes.reading import AT, CONSISTENCY, LEAST, WAIT, Value, not_modified, reading_for, tag_of

MESSAGE_PACK = "application/msgpack"

_STATE = "/jobs/{job}/steps/{step}/state/{state}"
_ERRORS = (304, 409, 410, 413, 421)


class ManyKeys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Keys as JSON has them; a tuple is an array. `at`, `least` and `wait`: as in the query of a single key."""

    keys: Annotated[list[Any], Meta(max_length=MOST_KEYS)]
    at: Annotated[int, Meta(ge=0)] | None = None
    least: Annotated[int, Meta(ge=0)] | None = None
    wait: Annotated[float, Meta(ge=0, le=60)] | None = None


class OneOfMany(msgspec.Struct, frozen=True):
    """`found`: false if nothing is kept for the key."""

    key: Any
    found: bool
    value: Any = None


class ManyValues(msgspec.Struct, frozen=True):
    """What is kept for some keys, in their order, all at one epoch."""

    epoch: Epoch
    watermark: int | None
    values: list[OneOfMany]


class Entries(msgspec.Struct, frozen=True):
    """Entries, as rows of their columns. `next`: give it as `after` to have those behind them; none at the end."""

    epoch: Epoch
    watermark: int | None
    entries: list[dict[str, Any]]
    next: str | None


class RawEntries(msgspec.Struct, frozen=True):
    """What is stored of a key, as MessagePack, for clients that know its types."""

    epoch: Epoch
    watermark: int | None
    entries: list[tuple[bytes, bytes]]
    kind: str
    namespace: int
    ttl: bool


async def read_key(call: Call) -> Answer:
    job, reading = await reading_for(call)
    with reading:
        unchanged = not_modified(call, reading)
        if unchanged is not None:
            return unchanged
        step, state, key = call.path["step"], call.path["state"], call.path["key"]
        if MESSAGE_PACK in call.headers.get("accept", ""):
            view = job.catalog.view(reading, step, state)
            with reading.lock:
                entries = view.entries(reading, view.key_of_text(key))
            watermark = shown_watermark(reading, step)
            raw = RawEntries(reading.epoch, watermark, entries, view.kind.name, view.info.namespace, view.info.ttl)
            return Answer(encoded=msgspec.msgpack.encode(raw), content_type=MESSAGE_PACK, tag=tag_of(reading))
        found = one_value(job.catalog, reading, step, state, key)
        return Answer(body=Value(found.epoch, found.watermark, found.value), tag=tag_of(reading))


async def read_many(call: Call) -> Answer:
    asked: ManyKeys = call.body
    job, reading = await reading_for(call, at=asked.at, least=asked.least, wait=asked.wait)
    with reading:
        found = many_values(job.catalog, reading, call.path["step"], call.path["state"], asked.keys)
        watermark = shown_watermark(reading, call.path["step"])
        values = [OneOfMany(key, one.found, one.value) for key, one in zip(asked.keys, found, strict=True)]
        return Answer(body=ManyValues(reading.epoch, watermark, values), tag=tag_of(reading))


async def read_whole(call: Call) -> Answer:
    """Of broadcast state, which has no keys."""
    job, reading = await reading_for(call)
    with reading:
        unchanged = not_modified(call, reading)
        if unchanged is not None:
            return unchanged
        view = job.catalog.view(reading, call.path["step"], call.path["state"])
        if not view.is_broadcast:
            raise BadRequestError("this state is kept by key", hint="add the key to the path, or read /entries of the state")
        found = value_of(reading, view, view.key_of_value(None))
        return Answer(body=Value(found.epoch, found.watermark, found.value if found.found else []), tag=tag_of(reading))


async def list_entries(call: Call) -> Answer:
    job, reading = await reading_for(call)
    with reading:
        view = job.catalog.view(reading, call.path["step"], call.path["state"])
        spans, narrowed = _spans(view, call)
        spans = spans_for(view, spans, narrowed=narrowed)
        found = page(reading, view, spans, call.query.get("limit", 100), cursor_of(call.query.get("after")))
        watermark = shown_watermark(reading, call.path["step"])
        return Answer(body=Entries(found.epoch, watermark, rows_of(view, found.entries), found.next), tag=tag_of(reading))


def _spans(view: StateView, call: Call) -> tuple[Spans, bool]:
    low, high, prefix = call.query.get("from"), call.query.get("to"), call.query.get("prefix")
    if prefix is not None:
        if low is not None or high is not None:
            raise BadRequestError("prefix= and a range of keys were given together", hint="give one of them")
        return beginning(_key(view, prefix)), True
    if low is None and high is None:
        return everything(), False
    return between(None if low is None else _key(view, low), None if high is None else _key(view, high)), True


def _key(view: StateView, text: str) -> Any:
    """A bound as it stands in a URL: text where keys are texts, JSON otherwise."""
    if view.keys_are_texts:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise BadRequestError("a bound of keys is not JSON", hint="keys here are no texts: write 17, or [1,2]") from None


ENDPOINTS = (
    Endpoint(
        method="POST",
        path=_STATE + "/keys",
        name="read_keys",
        about="What a state keeps for several keys, all at one epoch.",
        handler=read_many,
        body=ManyKeys,
        answers=ManyValues,
        errors=(409, 410, 421),
    ),
    Endpoint(
        method="GET",
        path="/jobs/{job}/steps/{step}/entries/{state}",
        name="list_entries",
        about="Entries of a state in pages: all, or those of a range of keys.",
        handler=list_entries,
        parameters=(
            *CONSISTENCY,
            Parameter(name="from", about="The first key."),
            Parameter(name="to", about="The key that ends the range; it is not in it."),
            Parameter(name="prefix", about="Keys that begin so: texts, or (as a JSON array) tuples."),
            Parameter(name="limit", kind="integer", least=1, most=MOST_ENTRIES, about="So many entries at most; 100."),
            Parameter(name="after", about="The cursor that the page before gave as next."),
        ),
        answers=Entries,
        errors=_ERRORS,
    ),
    Endpoint(
        method="GET",
        path=_STATE,
        name="read_broadcast",
        about="All of a broadcast state.",
        handler=read_whole,
        parameters=(AT, LEAST, WAIT),
        answers=Value,
        errors=_ERRORS,
    ),
    Endpoint(
        method="GET",
        path=_STATE + "/{key:path}",
        name="read_key",
        about="What a state keeps for a key: a value; of windows a list with one object for each. A key that is no text is JSON.",
        handler=read_key,
        parameters=CONSISTENCY,
        answers=Value,
        errors=_ERRORS,
    ),
)
