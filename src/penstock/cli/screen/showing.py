"""Values of snapshots in a terminal, and as JSON."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

_WIDTH = 120


def shown(value: Any) -> str:
    """One value, in one line of bounded length."""
    text = _text(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds" if value.microsecond else "seconds").replace("+00:00", "Z")
    if isinstance(value, str):
        return value
    if isinstance(value, (date, time, timedelta)):
        return str(value)
    return as_json(value)


def moment(ms: int) -> str:
    """A time to the second; a number where the calendar ends.

    >>> moment(1_700_000_000_000)
    '2023-11-14 22:13:20'
    """
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return str(ms)


def as_json(value: Any, *, indent: int | None = None) -> str:
    """JSON for programs: times in ISO 8601, bytes as hex."""
    return json.dumps(_plain(value), ensure_ascii=False, indent=indent)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {_name(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (datetime, date, time)):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    return value


def _name(key: Any) -> str:
    plain = _plain(key)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
