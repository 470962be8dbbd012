"""Timestamps of records: from a field or a function, in a unit that the user names.

A moment that says itself what it is (a datetime, a date, an Arrow timestamp) needs no unit. Whole numbers are in `unit`; seconds
may have fractions, and are rounded to the millisecond. Digits below a millisecond are cut off.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from operator import attrgetter, itemgetter
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from penstock.errors import ConfigError
from penstock.ids import Milliseconds
from penstock.records import IN_MS, NO_TIMESTAMP, Batch, Columns, Timestamps, timestamps_of
from penstock.timing.durations import time_ms

Unit = Literal["s", "ms", "us", "ns"]
"""Of whole numbers: seconds, milliseconds, microseconds or nanoseconds since 1970."""

TimestampSelector = str | Callable[[Any], "int | float | datetime"] | None
"""A column or field name, a function of the record, or None: the source's own timestamps."""

RECORD_NOTE = "record: "
"""How a note begins that names the record whose timestamp could not be had."""

HINT_NOTE = "hint: "
"""How a note begins that says what to do about it."""

LOOK_AT = 100
"""So many timestamps tell in what unit they are."""

_FROM, _UNTIL = 315_532_800, 4_102_444_800
"""1980 and 2100, in seconds."""

_SECONDS = f'{HINT_NOTE}if these are seconds since 1970, as time.time() gives them, say unit="s" beside timestamp='

_UNITS: tuple[Unit, ...] = ("ns", "us", "ms", "s")
_NAMES: dict[Unit, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
_OFF_BY = {1: 1, -1: 1_000_000, -2: 1_000_000_000}
"""So many units too large or too small, and what a second is then instead of 1000 ms."""


def check_unit(unit: str, timestamp: object) -> None:
    """Refuse a unit that is not one, or is of nothing."""
    if unit not in get_args(Unit):
        raise ConfigError(f"unit={unit!r}", hint='timestamps are in "s", "ms", "us" or "ns" since 1970')
    if unit != "ms" and timestamp is None:
        raise ConfigError(
            f"unit={unit!r} without timestamp=", hint='say what is in this unit: the field, for example timestamp="time"'
        )


def select_timestamps(batch: Batch, selector: str | Callable[[Any], int | float | datetime], unit: Unit = "ms") -> Timestamps:
    """The timestamps of a batch, in milliseconds; `NO_TIMESTAMP` where the field is None."""
    if isinstance(selector, str) and isinstance(batch, Columns):
        try:
            return timestamps_of(batch.data.column(selector), unit)
        except TypeError as error:
            if unit != "s" and pa.types.is_floating(batch.data.column(selector).type):
                error.add_note(_SECONDS)
            raise
    values = batch.values()
    get: Callable[[Any], Any]
    if not isinstance(selector, str):
        get = selector
    else:
        get = itemgetter(selector) if values and isinstance(values[0], dict) else attrgetter(selector)
    in_ms: Callable[[Any], Milliseconds] = time_ms if unit == "ms" else _converter(unit)
    plain = int if unit == "ms" else None
    times: list[int] = []
    time: Any = None
    try:
        for value in values:
            time = get(value)
            times.append(time if type(time) is plain else NO_TIMESTAMP if time is None else in_ms(time))
    except Exception as error:
        error.add_note(f"{RECORD_NOTE}{values[len(times)]!r:.500}")
        if unit != "s" and isinstance(time, float | np.floating) and _FROM <= time < _UNTIL:
            error.add_note(_SECONDS)
        raise
    return np.asarray(times, dtype=np.int64)


def _converter(unit: Unit) -> Callable[[Any], Milliseconds]:
    factor, divisor = IN_MS[unit]

    def in_ms(moment: Any) -> Milliseconds:
        if unit == "s" and isinstance(moment, float | np.floating):
            return round(moment * 1000)
        time = time_ms(moment)
        return time if isinstance(moment, date) else time * factor // divisor

    return in_ms


def likely_unit(times: Timestamps, unit: Unit) -> Unit | None:
    """The unit that the first timestamps were probably meant in, if it is another than `unit`.

    It is one in which all of them are between 1980 and 2100. Seconds that are taken for milliseconds are in the first weeks of
    1970, from the fourth of January on: times that begin at 0 on purpose, and go on for some hours, are not among them. A 0
    stands for a missing time in much data, and is left out.
    """
    first = times[:LOOK_AT]
    first = first[(first != NO_TIMESTAMP) & (first != 0)]
    if not len(first):
        return None
    least, most = int(first.min()), int(first.max())
    for larger, second in _OFF_BY.items():
        if _FROM * second <= least and most < _UNTIL * second:
            at = _UNITS.index(unit) + larger
            return _UNITS[at] if 0 <= at < len(_UNITS) else None
    return None


def unit_warning(step: str, batch: Batch, selector: str | Callable[[Any], Any], unit: Unit) -> str | None:
    """What to say about the first timestamps of a stream, if they were probably meant in another unit."""
    times = batch.timestamps
    likely = None if times is None else likely_unit(times, unit)
    if times is None or likely is None:
        return None
    row = int(np.flatnonzero((times != NO_TIMESTAMP) & (times != 0))[0])
    given = _given(batch.take(np.asarray([row])), selector)
    if isinstance(given, date):  # also a datetime: it says itself when it is
        return None
    name = f" in {selector!r}" if isinstance(selector, str) else ""
    return (
        f"step {step!r}: the first timestamp{name}, {given}, is taken for {_NAMES[unit]} since 1970: {_month(int(times[row]))}; "
        f"if these are {_NAMES[likely]}, say unit={likely!r} beside timestamp="
    )


def _given(record: Batch, selector: str | Callable[[Any], Any]) -> Any:
    """What the selector gives for one record."""
    if not isinstance(selector, str):
        return selector(record.values()[0])
    if isinstance(record, Columns):
        return record.data.column(selector)[0].as_py()
    value = record.values()[0]
    return value[selector] if isinstance(value, dict) else getattr(value, selector)


def _month(time: Milliseconds) -> str:
    try:
        return f"{datetime.fromtimestamp(time / 1000, UTC):%B %Y}"
    except (ValueError, OverflowError, OSError):
        return f"the year {1970 + time // 31_556_952_000:,}"
