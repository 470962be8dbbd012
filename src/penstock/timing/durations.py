"""From the API's times to milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.errors import ConfigError
from penstock.ids import Milliseconds

Duration = timedelta | float | int
"""A `timedelta`, or a number of seconds."""


def to_ms(duration: Duration, *, what: str = "duration") -> Milliseconds:
    """Milliseconds of a `timedelta` or a number of seconds.

    >>> to_ms(timedelta(minutes=1)), to_ms(0.5)
    (60000, 500)
    """
    if isinstance(duration, timedelta):
        ms = round(duration.total_seconds() * 1000)
    else:
        try:
            ms = round(duration * 1000)
        except TypeError:
            raise ConfigError(f"{what} is {duration!r}", hint="give a timedelta, or a number of seconds") from None
    if ms < 0:
        raise ConfigError(f"{what} is negative: {duration!r}", hint="give a duration of zero or more")
    return ms


def time_ms(moment: datetime | int) -> Milliseconds:
    """Milliseconds of a moment: an `int` is milliseconds already, a naive `datetime` is taken as UTC.

    >>> time_ms(datetime(1970, 1, 1, 0, 0, 1))
    1000
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            return round(moment.replace(tzinfo=UTC).timestamp() * 1000)
        return round(moment.timestamp() * 1000)
    return int(moment)
