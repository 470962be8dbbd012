"""From the API's times to milliseconds."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from numbers import Integral
from typing import Any

from penstock.errors import ConfigError
from penstock.ids import Milliseconds

Duration = timedelta | float | int
"""A `timedelta`, or a number of seconds."""


def calendar_time(ms: Milliseconds) -> datetime | int:
    """A time for people; a number where the calendar ends."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return ms


def to_ms(duration: Duration, *, what: str = "duration") -> Milliseconds:
    """Milliseconds of a `timedelta` or a number of seconds.

    >>> to_ms(timedelta(minutes=1)), to_ms(0.5)
    (60000, 500)
    """
    ms = signed_ms(duration, what=what)
    if ms < 0:
        raise ConfigError(f"{what} is negative: {duration!r}", hint="give a duration of zero or more")
    return ms


_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}


def parse_duration(text: str, *, what: str = "duration") -> float:
    """Seconds of a duration as one types it: a number of seconds, or with a unit.

    >>> parse_duration("90"), parse_duration("1.5h"), parse_duration("7d")
    (90.0, 5400.0, 604800.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if match is None or (match[2] and match[2] not in _UNITS):
        raise ConfigError(
            f"{what} is {text!r}", hint=f"give a number and a unit, such as 90s, 12h or 7d; units: {', '.join(_UNITS)}"
        )
    return float(match[1]) * _UNITS.get(match[2], 1)


def signed_ms(duration: Duration, *, what: str = "duration") -> Milliseconds:
    """As `to_ms`, for what may be negative, such as an offset."""
    if isinstance(duration, timedelta):
        return round(duration / timedelta(milliseconds=1))
    try:
        return round(duration * 1000)
    except TypeError:
        raise ConfigError(f"{what} is {duration!r}", hint="give a timedelta, or a number of seconds") from None


def total_ms(size: Duration | None, *, what: str, **units: float) -> Milliseconds:
    """A duration given as a whole, or in units: `hours=1, minutes=30`.

    >>> total_ms(None, what="size", hours=1, minutes=30)
    5400000
    """
    given = any(units.values())
    if (size is None) != given:
        raise ConfigError(f"{what} must be given once", hint="as a timedelta, or in units such as minutes=5")
    try:
        return signed_ms(timedelta(**units) if size is None else size, what=what)
    except TypeError:
        raise ConfigError(f"{what} is given as {units!r}", hint="give numbers, such as minutes=5") from None


def time_ms(moment: datetime | date | int) -> Milliseconds:
    """Milliseconds of a moment: an `int` is milliseconds already, a naive `datetime` is taken as UTC.

    >>> time_ms(datetime(1970, 1, 1, 0, 0, 1))
    1000
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) // _MILLISECOND
    if isinstance(moment, date):
        return (datetime(moment.year, moment.month, moment.day, tzinfo=UTC) - _EPOCH) // _MILLISECOND
    given: Any = moment
    if isinstance(given, bool) or not isinstance(given, Integral):
        raise TypeError(f"{given!r} is not a time: give an integer (milliseconds), a datetime or a date")
    return int(given)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
