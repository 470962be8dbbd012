"""What a script says besides its records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.ids import Milliseconds


@dataclass(frozen=True, slots=True)
class Record:
    """A record with its event time. A value that is no marker is a record without one."""

    value: Any
    timestamp: Milliseconds | None = None


@dataclass(frozen=True, slots=True)
class Watermark:
    """The partition's event time is `time` from here on; needs `watermarks=scripted_watermarks()`."""

    time: Milliseconds


@dataclass(frozen=True, slots=True)
class ProcessingTime:
    """What follows is not there before the clock shows `time`."""

    time: Milliseconds


@dataclass(frozen=True, slots=True)
class Cut:
    """The epoch reads no further."""


@dataclass(frozen=True, slots=True)
class Crash:
    """The task that reads this fails, the first `times` times it is reached; later attempts pass."""

    times: int = 1


@dataclass(frozen=True, slots=True)
class End:
    """Nothing will ever follow. A script without it stays open."""


Item = Record | Watermark | ProcessingTime | Cut | Crash | End
MARKERS = (Record, Watermark, ProcessingTime, Cut, Crash, End)


def as_items(script: Any) -> tuple[Item, ...]:
    """A script with its plain values as records."""
    return tuple(item if isinstance(item, MARKERS) else Record(item) for item in script)
