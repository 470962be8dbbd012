"""Answers of single queries: each is of one epoch, and says which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Epoch, Milliseconds
from penstock.query.catalog import Catalog
from penstock.query.errors import TooMuchError, UnknownKeyError
from penstock.query.reading import Entry, Reading
from penstock.query.state_views import StateView

MOST_KEYS = 1000
MOST_ENTRIES = 10_000
"""In one answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is kept for a key at an epoch. `value`: None if nothing is (then `found` is false)."""

    epoch: Epoch
    watermark: Milliseconds | None
    found: bool
    value: Any = None


def shown_watermark(reading: Reading, step: str) -> Milliseconds | None:
    """A step's event time at the epoch; None before its first, and when all time is over."""
    watermark = reading.watermark(step)
    return None if watermark is None or watermark in (MIN_WATERMARK, MAX_WATERMARK) else watermark


def entries_of(reading: Reading, view: StateView, encoded: bytes) -> list[Entry]:
    """What is stored of a key; refused if it is more than an answer may hold."""
    entries = view.entries(reading, encoded)
    if len(entries) > MOST_ENTRIES:
        raise TooMuchError(
            f"the key has {len(entries)} entries in state {view.info.name!r}",
            detail=f"an answer holds {MOST_ENTRIES} at most",
            hint="read them in pages, by /entries?key=…",
        )
    return entries


def value_of(reading: Reading, view: StateView, encoded: bytes) -> Found:
    with reading.lock:
        entries = entries_of(reading, view, encoded)
        value = view.value(reading, encoded, entries) if entries else None
    empty = not entries or (view.kind.many_keys and not value)
    watermark = shown_watermark(reading, view.info.step)
    return Found(epoch=reading.epoch, watermark=watermark, found=not empty, value=value)


def one_value(catalog: Catalog, reading: Reading, step: str, state: str, key: str) -> Found:
    """By a key as text; nothing kept for it is an error."""
    view = catalog.view(reading, step, state)
    found = value_of(reading, view, view.key_of_text(key))
    if not found.found:
        raise UnknownKeyError(f"nothing is kept for the key in state {state!r} of step {step!r}, at epoch {reading.epoch}")
    return found


def many_values(catalog: Catalog, reading: Reading, step: str, state: str, keys: Sequence[Any]) -> list[Found]:
    """By keys as values, in their order."""
    if len(keys) > MOST_KEYS:
        raise TooMuchError(f"{len(keys)} keys were asked for at once", hint=f"ask for {MOST_KEYS} at most")
    view = catalog.view(reading, step, state)
    return [value_of(reading, view, view.key_of_value(key)) for key in keys]
