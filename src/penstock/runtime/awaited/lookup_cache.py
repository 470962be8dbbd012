"""What is kept of the answers of a lookup: the keys that were used last, each for its time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from time import monotonic
from typing import Any, Final

from penstock.config import LookupCache
from penstock.timing.durations import to_ms


class Missing:
    """Nothing is known of a key; or it is known that there is nothing."""


UNKNOWN: Final = Missing()
ABSENT: Final = Missing()


class KeptAnswers:
    """A cache: least recently used first out."""

    def __init__(self, definition: LookupCache, now_s: Callable[[], float] = monotonic) -> None:
        self._size = definition.size
        self._ttl_s = None if definition.ttl is None else to_ms(definition.ttl) / 1000
        self._keeps_absent = definition.absent
        self._now_s = now_s
        self._kept: OrderedDict[Hashable, tuple[Any, float]] = OrderedDict()
        self.evicted = 0
        """How many have gone, because of their age or for want of room, and not been counted yet."""

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Hashable) -> Any:
        """The value; ABSENT, UNKNOWN."""
        found = self._kept.get(key)
        if found is None:
            return UNKNOWN
        value, until = found
        if self._ttl_s is not None and until <= self._now_s():
            del self._kept[key]
            self.evicted += 1
            return UNKNOWN
        self._kept.move_to_end(key)
        return value

    def keep(self, key: Hashable, value: Any) -> None:
        if value is ABSENT and not self._keeps_absent:
            return
        self._kept[key] = value, 0.0 if self._ttl_s is None else self._now_s() + self._ttl_s
        self._kept.move_to_end(key)
        while len(self._kept) > self._size:
            self._kept.popitem(last=False)
            self.evicted += 1

    def take_evicted(self) -> int:
        evicted, self.evicted = self.evicted, 0
        return evicted
