"""Evictors: which records a window keeps when it fires. What is evicted is gone from the window for good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.errors import ConfigError
from penstock.ids import Milliseconds
from penstock.timing.durations import Duration, to_ms
from penstock.windows.window import TimeWindow


class Element(NamedTuple):
    """A record in a window, with its timestamp (None if it has none)."""

    value: Any
    timestamp: Milliseconds | None


class Evictor:
    """What a user implements: both methods get the elements in order of arrival and return those that stay."""

    def evict_before(self, elements: list[Element], window: TimeWindow) -> list[Element]:
        """Before the window function sees them."""
        return elements

    def evict_after(self, elements: list[Element], window: TimeWindow) -> list[Element]:
        """After it."""
        return elements

    def describe(self) -> str:
        """For explain."""
        return type(self).__name__


@dataclass(frozen=True)
class OneSided(Evictor):
    """An evictor that works either before or after the window function."""

    def kept(self, elements: list[Element]) -> list[Element]:
        raise NotImplementedError

    @property
    def works_after(self) -> bool:
        raise NotImplementedError

    def evict_before(self, elements: list[Element], window: TimeWindow) -> list[Element]:
        return elements if self.works_after else self.kept(elements)

    def evict_after(self, elements: list[Element], window: TimeWindow) -> list[Element]:
        return self.kept(elements) if self.works_after else elements

    def _where(self) -> str:
        return "after the function" if self.works_after else "before the function"


@dataclass(frozen=True)
class CountEvictor(OneSided):
    """Keeps the newest `keep` records."""

    keep: int
    after: bool = False

    def __post_init__(self) -> None:
        if self.keep < 0:
            raise ConfigError(f"CountEvictor({self.keep})", hint="the number of records to keep is zero or more")

    @property
    def works_after(self) -> bool:
        return self.after

    def kept(self, elements: list[Element]) -> list[Element]:
        return elements[max(0, len(elements) - self.keep) :]

    def describe(self) -> str:
        return f"keeps {self.keep} records, {self._where()}"


@dataclass(frozen=True, init=False)
class TimeEvictor(OneSided):
    """Keeps the records of the last `keep` before the latest one; all of them if they have no timestamps."""

    keep_ms: Milliseconds
    after: bool

    def __init__(self, keep: Duration, after: bool = False) -> None:
        object.__setattr__(self, "keep_ms", to_ms(keep, what="what a TimeEvictor keeps"))
        object.__setattr__(self, "after", after)

    @property
    def works_after(self) -> bool:
        return self.after

    def kept(self, elements: list[Element]) -> list[Element]:
        times = [element.timestamp for element in elements if element.timestamp is not None]
        if not times:
            return elements
        cutoff = max(times) - self.keep_ms
        return [element for element in elements if element.timestamp is None or element.timestamp > cutoff]

    def describe(self) -> str:
        return f"keeps {self.keep_ms} ms, {self._where()}"


@dataclass(frozen=True)
class DeltaEvictor(OneSided):
    """Keeps the records that are nearer than `threshold` to the newest one, by `delta(record, newest)`."""

    threshold: float
    delta: Callable[[Any, Any], float]
    after: bool = False

    @property
    def works_after(self) -> bool:
        return self.after

    def kept(self, elements: list[Element]) -> list[Element]:
        if not elements:
            return elements
        newest = elements[-1].value
        return [element for element in elements if self.delta(element.value, newest) < self.threshold]

    def describe(self) -> str:
        return f"keeps deltas below {self.threshold}, {self._where()}"
