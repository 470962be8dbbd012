"""Entries of many keys, in pages: all, those of a range of keys, those whose keys begin so, those of one key.

Law: pages of one epoch, put together, are its entries, each once. They come by key group, and within a group as they are stored.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.ids import Epoch
from penstock.query.errors import BadRequestError
from penstock.query.key_spans import Spans
from penstock.query.reading import Entry, Reading
from penstock.query.state_views import StateView
from penstock.state.entries.store_keys import end_of_value, value_prefix
from penstock.state.key_groups import SHARED_GROUP

MOST_SCANNED = 200_000
"""Entries that are looked at for one page."""

_unpack = msgspec.msgpack.Decoder().decode


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where the next page begins: at or after this raw key of this group."""

    group: int
    raw_key: bytes

    def text(self) -> str:
        return base64.urlsafe_b64encode(msgspec.msgpack.encode(self)).decode().rstrip("=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some entries. `next`: the cursor of the page behind it; none if there is none."""

    epoch: Epoch
    entries: list[Entry]
    next: str | None


def cursor_of(text: str | None) -> Cursor | None:
    """A cursor that a page gave."""
    if text is None:
        return None
    try:
        return msgspec.msgpack.decode(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True), type=Cursor)
    except (ValueError, msgspec.MsgspecError):
        raise BadRequestError("after= is no cursor", hint="give what the page before said is next") from None


def page(reading: Reading, view: StateView, spans: Spans, limit: int, after: Cursor | None) -> Page:
    """The next entries, at most `limit`. A page may have fewer, and even none, and still have one behind it."""
    found: list[Entry] = []
    scanned = 0
    with reading.lock:
        for place, entry in _places(reading, view, spans, after):
            if len(found) >= limit or scanned >= MOST_SCANNED:
                return Page(epoch=reading.epoch, entries=view.alive(reading.manifest, found), next=place.text())
            scanned += 1
            if entry is not None:
                found.append(entry)
    return Page(epoch=reading.epoch, entries=view.alive(reading.manifest, found), next=None)


def _places(reading: Reading, view: StateView, spans: Spans, after: Cursor | None) -> Iterator[tuple[Cursor, Entry | None]]:
    """The stored entries from a place on; None for one that is not wanted."""
    groups = [SHARED_GROUP] if view.is_broadcast else list(reading.groups)
    start = b""
    if after is not None:
        groups = [group for group in groups if group >= after.group]
        start = after.raw_key if groups and groups[0] == after.group else b""
    by_key = not (view.kind.many_keys or view.kind.by_time or view.is_broadcast)
    for group in groups:
        if by_key:
            yield from _by_key(reading, view, group, spans, start)
        else:
            for raw, value in _from(reading, view, group, start):
                yield Cursor(group, raw), (raw, value)
        start = b""


def _by_key(reading: Reading, view: StateView, group: int, spans: Spans, start: bytes) -> Iterator[tuple[Cursor, Entry | None]]:
    at: bytes | None = spans.next_start(start)
    while at is not None:
        skipped = None
        for raw, value in _from(reading, view, group, at):
            encoded = raw[: end_of_value(raw)]
            following = spans.next_start(encoded)
            if following != encoded:
                skipped = following
                break
            yield Cursor(group, raw), (raw, value) if spans.wanted(_unpack(encoded)) else None
        else:
            return
        at = skipped


def _from(reading: Reading, view: StateView, group: int, start: bytes) -> Iterator[Entry]:
    """Entries of a group from a raw key on."""
    head = value_prefix(group, view.number)
    stop = value_prefix(group, view.number + 1) if view.number < 0xFFFF else None
    for key, value in reading.part(view.number, group).range(head + start, stop):
        yield key[4:], value


def spans_for(view: StateView, spans: Spans, *, narrowed: bool) -> Spans:
    """Refuse a range of keys in a state that is not kept by key."""
    if narrowed and (view.kind.many_keys or view.kind.by_time or view.is_broadcast):
        raise BadRequestError(
            f"state {view.info.name!r} of step {view.info.step!r} is not in order of keys", hint="read all of it"
        )
    return spans


def rows_of(view: StateView, entries: list[Entry]) -> list[dict[str, Any]]:
    return view.rows(entries) if entries else []
