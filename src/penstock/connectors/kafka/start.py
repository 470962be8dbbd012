"""Where reading begins, and where it ends: what a program may say, and the offsets that it means."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Literal, cast

from penstock.errors import ConfigError

Where = Literal["earliest", "latest", "group"] | datetime | Mapping[str, int]
Until = Literal["now"] | datetime | Mapping[str, int]

START_NAMES = ("earliest", "latest", "group")


def checked_start(start: object) -> Where:
    if start in START_NAMES or isinstance(start, datetime | Mapping):
        return cast(Where, _checked(start, "start"))
    raise ConfigError(
        f"start={start!r} is not known",
        hint='use "earliest", "latest", "group" (what the group has committed), an aware datetime, or offsets: {"topic:0": 42}',
    )


def checked_stop(stop: object) -> Until | None:
    if stop is None or stop == "now" or isinstance(stop, datetime | Mapping):
        return cast("Until | None", _checked(stop, "stop"))
    raise ConfigError(
        f"stop={stop!r} is not known",
        hint='use "now" (what is there at the first start), an aware datetime, or offsets to end before: {"topic:0": 42}',
    )


def _checked(value: object, name: str) -> object:
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ConfigError(f"{name}={value} has no time zone", hint="use an aware datetime: datetime(..., tzinfo=UTC)")
    if isinstance(value, Mapping):
        for place, offset in value.items():
            topic, colon, partition = str(place).rpartition(":")
            if not (topic and colon and partition.isdecimal()) or not isinstance(offset, int) or offset < 0:
                raise ConfigError(f"{name}={{{place!r}: {offset!r}}} is not an offset", hint='write {"topic:0": 42}')
        return dict(value)
    return value


def in_ms(when: datetime) -> int:
    return round(when.timestamp() * 1000)
