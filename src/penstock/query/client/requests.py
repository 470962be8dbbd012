"""What the clients have in common: requests and answers as values; which server is asked, and when again. No I/O.

Laws:
- The epoch of a client never goes back: it asks for the newest epoch that it has seen, or a later one.
- A request that changes nothing is sent again, to the next server if there is one, until `retry_s` are over.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec

from penstock.ids import Epoch
from penstock.query.client.decoding import Answered, Event, RawAnswer, absent, decoded, error_of
from penstock.query.errors import QueryError
from penstock.state.descriptors import State
from penstock.state.encoding.json_values import to_plain

API = "/api/v1"
MESSAGE_PACK = "application/msgpack"
AGAIN = frozenset((408, 429, 503))

_raw = msgspec.msgpack.Decoder(RawAnswer).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request. `path`: below the API, each part quoted."""

    path: str
    method: str = "GET"
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None
    accept: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRange:
    """A server, and the key groups that it has; None: all."""

    url: str
    groups: range | None = None


class Session:
    """What a client knows: the newest epoch of each job that it has seen."""

    def __init__(self) -> None:
        self._seen: dict[str, Epoch] = {}

    def saw(self, job: str, epoch: int) -> None:
        self._seen[job] = Epoch(max(epoch, self._seen.get(job, 0)))

    def consistency(self, job: str, at: int | None, least: int | None, wait: float | None) -> dict[str, str]:
        """The query of a read."""
        if at is not None:
            return {"at": str(at)}
        wanted = max(least or 0, self._seen.get(job, 0))
        found = {"least": str(wanted)} if wanted else {}
        return found | ({"wait": str(wait)} if wait is not None else {})


def key_text(key: Any) -> str:
    """A key as it stands in a URL."""
    return key if isinstance(key, str) else json.dumps(_plain(key))


def _plain(key: Any) -> Any:
    return [_plain(part) for part in key] if isinstance(key, tuple) else to_plain(key)


def state_path(job: str, step: str, state: str, *more: str) -> str:
    return "/".join([step_path(job, step), "state", quote(state, safe=""), *more])


def step_path(job: str, step: str) -> str:
    return f"{API}/jobs/{quote(job, safe='')}/steps/{quote(step, safe='')}"


def asked_value(job: str, step: str, state: str, key: Any, query: dict[str, str], *, raw: bool) -> Asked:
    accept = MESSAGE_PACK if raw else "application/json"
    return Asked(path=state_path(job, step, state, quote(key_text(key), safe="")), query=query, accept=accept)


def asked_many(job: str, step: str, state: str, keys: Sequence[Any], query: dict[str, str]) -> Asked:
    more = {name: float(text) if name == "wait" else int(text) for name, text in query.items()}
    return Asked(path=state_path(job, step, state, "keys"), method="POST", body={"keys": [_plain(key) for key in keys], **more})


def asked_entries(job: str, step: str, state: str, query: dict[str, str]) -> Asked:
    return Asked(
        path=f"{API}/jobs/{quote(job, safe='')}/steps/{quote(step, safe='')}/entries/{quote(state, safe='')}", query=query
    )


def asked_changes(job: str, step: str, query: dict[str, str]) -> Asked:
    return Asked(
        path=f"{API}/jobs/{quote(job, safe='')}/steps/{quote(step, safe='')}/changes", query=query, accept="text/event-stream"
    )


def value_of(data: bytes, content_type: str, declared: State | None) -> Answered[Any]:
    if declared is not None and content_type.startswith(MESSAGE_PACK):
        raw = _raw(data)
        if not raw.entries:
            return Answered(epoch=raw.epoch, watermark=raw.watermark, value=absent(declared), found=False)
        return Answered(epoch=raw.epoch, watermark=raw.watermark, value=decoded(raw, declared))
    body = msgspec.json.decode(data)
    return Answered(epoch=body["epoch"], watermark=body["watermark"], value=body["value"])


def values_of(data: bytes) -> Answered[list[Any]]:
    """The values of many keys in the order of the keys; None where nothing is kept."""
    body = msgspec.json.decode(data)
    return Answered(epoch=body["epoch"], watermark=body["watermark"], value=[one["value"] for one in body["values"]])


def problem_of(status: int, data: bytes) -> QueryError:
    try:
        return error_of(status, msgspec.json.decode(data))
    except msgspec.MsgspecError:
        return error_of(status, None)


def is_again(status: int) -> bool:
    """Is the request to be sent again in a moment?"""
    return status in AGAIN


class EventLines:
    """Server-sent events, put together from lines."""

    def __init__(self) -> None:
        self._kind = ""
        self._data = ""

    def take(self, line: str) -> Event | None:
        """The event that a line ends."""
        name, _, value = line.partition(":")
        if line:
            if name == "event":
                self._kind = value.strip()
            elif name == "data":
                self._data += value.removeprefix(" ")
            return None
        kind, data, self._kind, self._data = self._kind, self._data, "", ""
        if not data:
            return None
        told = msgspec.json.decode(data)
        if kind == "error":
            raise error_of(0, {"error": told})
        return Event(kind=kind, epoch=told["epoch"], data=told)
