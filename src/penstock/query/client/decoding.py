"""Stored entries as values of the type that a state declares."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from penstock.ids import Epoch, Milliseconds
from penstock.query.errors import BadRequestError, QueryError, by_code
from penstock.state.descriptors import AggregatingState, MapState, State, ValueState
from penstock.state.encoding.keys import key_codec
from penstock.state.encoding.stored_values import STAMP_SIZE, unframed
from penstock.state.entries.entry_columns import WINDOW_SIZE
from penstock.state.entries.store_keys import end_of_value, time_from_sortable
from penstock.state.overlay.handles import state_codec

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered(Generic[T]):
    """A value with the epoch that it is of. `found`: something is kept for the key."""

    epoch: Epoch
    watermark: Milliseconds | None
    value: T
    found: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that a subscription tells; `data` as the API has it."""

    kind: str
    epoch: Epoch
    data: dict[str, Any] = field(default_factory=dict)


class RawAnswer(msgspec.Struct, frozen=True):
    """What the API answers to who takes MessagePack."""

    epoch: Epoch
    watermark: int | None
    entries: list[tuple[bytes, bytes]]
    kind: str
    namespace: int
    ttl: bool


def decoded(raw: RawAnswer, state: State) -> Any:
    """What is kept for a key, as the declared state would give it; of windows a dict by (start, end)."""
    if raw.kind != state.kind:
        raise BadRequestError(f"the state is of kind {raw.kind!r}, and was declared as {state.kind!r}")
    if not raw.namespace:
        return _value(raw, raw.entries, state)
    windows: dict[tuple[int, int], list[tuple[bytes, bytes]]] = {}
    for key, value in raw.entries:
        end = end_of_value(key) + WINDOW_SIZE
        window = key[end - WINDOW_SIZE : end]
        windows.setdefault((time_from_sortable(window[:8]), time_from_sortable(window[8:])), []).append((key, value))
    return {window: _value(raw, entries, state) for window, entries in windows.items()}


def _value(raw: RawAnswer, entries: list[tuple[bytes, bytes]], state: State) -> Any:
    decode = state_codec(state).decode
    skip = STAMP_SIZE if raw.ttl else 0
    if raw.kind == "list":
        return [decode(item[skip:]) for _, data in entries for item in unframed(data)]
    if isinstance(state, MapState):
        keys = key_codec(state.key_type)
        return {keys.decode(key[end_of_value(key) + raw.namespace :]): decode(value[skip:]) for key, value in entries}
    value = decode(entries[0][1][skip:])
    return state.aggregate.result(value) if isinstance(state, AggregatingState) else value


def absent(state: State) -> Any:
    """What a state gives for a key that nothing is kept for."""
    if isinstance(state, MapState):
        return {}
    if state.kind == "list":
        return []
    return state.fresh_default() if isinstance(state, ValueState) else None


def error_of(status: int, body: Any) -> QueryError:
    """The error that an answer tells of, as its type."""
    told = body.get("error") if isinstance(body, dict) else None
    if not isinstance(told, dict):
        return QueryError(f"the server answered {status}")
    kind = by_code().get(str(told.get("code")), QueryError)
    return kind(str(told.get("message", "")), detail=str(told.get("detail", "")), hint=str(told.get("hint", "")))
