"""Timers of one step in one time domain.

Laws:
- A timer is (time, key). Registering it again is the same timer; it fires once; a deleted one does not fire.
- Timers fire in order of (time, encoded key). A timer beyond the end of time never fires.
- Committed timers are read from the store when time reaches them, changes live here until the epoch is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from penstock.errors import StateError
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds
from penstock.state.entries.store_keys import split_timer_key, timer_key
from penstock.state.key_groups import KeyGroups

if TYPE_CHECKING:
    from penstock.state.overlay.keyed import Committed, Slot

Timer = tuple[Milliseconds, bytes]

GENERATIONS = 10_000
"""How long a chain of timers that set timers may be at the end of time."""

AT_A_TIME = 100_000
"""About how many committed timers are in memory at a time."""


class TimerQueue:
    """Registered timers, ordered by time."""

    __slots__ = (
        "_added",
        "_committed",
        "_firing",
        "_generations",
        "_groups",
        "_heap",
        "_key_groups",
        "_namespace",
        "_next_committed",
        "_open",
        "_removed",
        "_scanned",
        "_stored",
        "ahead",
        "state_id",
    )

    def __init__(
        self,
        open_committed: Callable[[], Committed],
        *,
        state_id: int,
        groups: range,
        key_groups: KeyGroups,
        next_due: Milliseconds | None,
        namespace: int = 0,
    ) -> None:
        self.state_id = state_id
        self._open = open_committed
        self._groups = groups
        self._key_groups = key_groups
        self._namespace = namespace
        self._heap: list[Timer] = []
        self._added: set[Timer] = set()
        self._removed: set[Timer] = set()
        self._scanned: Milliseconds = MIN_WATERMARK
        self._committed: set[Timer] = set()
        self._stored: set[Timer] = set()
        self._firing: int | None = None
        self._generations: dict[Timer, int] = {}
        self._next_committed: Milliseconds = MAX_WATERMARK if next_due is None else next_due
        self.ahead: Milliseconds = MIN_WATERMARK
        """How far time goes in this epoch, as far as is known: so far committed timers are read at a time."""

    @property
    def waiting(self) -> list[Timer]:
        """The timers in memory, as a heap; deleted ones may be among them. The same list as long as the queue lives."""
        return self._heap

    @property
    def next_committed(self) -> Milliseconds:
        """When the first timer is due that is not in memory. It changes only when timers fire."""
        return self._next_committed

    def close(self) -> None:
        for timers in (self._heap, self._added, self._removed, self._committed, self._stored, self._generations):
            timers.clear()

    def register(self, time: Milliseconds, slot: Slot) -> None:
        if time > MAX_WATERMARK:
            return
        timer = (max(time, MIN_WATERMARK), slot.encoded)
        self._removed.discard(timer)
        if timer not in self._added and timer not in self._committed:
            if self._firing is not None:
                self._set_at_the_end(timer)
            self._added.add(timer)
            heappush(self._heap, timer)

    def _set_at_the_end(self, timer: Timer) -> None:
        """A timer that is set at the end of time is due at once: a timer that always sets the next one would never end."""
        assert self._firing is not None
        generation = self._generations[timer] = self._firing + 1
        if generation > GENERATIONS:
            raise StateError(
                f"a timer set a timer, which set a timer, {GENERATIONS} times over, after the end of the input",
                detail=f"the last one was for {timer[0]}",
                hint="at the end of a bounded input all timers fire: set no further ones when ctx.timers.ended is true",
            )

    def delete(self, time: Milliseconds, slot: Slot) -> None:
        if time > MAX_WATERMARK:
            return
        timer = (max(time, MIN_WATERMARK), slot.encoded)
        self._added.discard(timer)
        self._committed.discard(timer)
        self._removed.add(timer)

    def due(self, until: Milliseconds) -> Iterator[Timer]:
        """Take out the timers due by `until`, in order; timers registered while this runs are included if due."""
        heap = self._heap
        while True:
            horizon = min(until, self._load(max(until, self.ahead))) if until >= self._next_committed else until
            while heap and heap[0][0] <= horizon:
                timer = heappop(heap)
                if timer in self._committed:
                    self._committed.discard(timer)
                    self._added.discard(timer)
                    self._removed.add(timer)
                elif timer in self._added:
                    self._added.discard(timer)
                    if timer in self._stored:
                        self._removed.add(timer)
                else:
                    continue
                if until == MAX_WATERMARK:
                    self._firing = self._generations.pop(timer, 0)
                yield timer
            self._firing = None
            if horizon >= until:
                return

    def pending(self) -> Iterator[Timer]:
        """Take out all timers, in order; not those registered while this runs, nor those deleted meanwhile."""
        while self._load(MAX_WATERMARK) < MAX_WATERMARK:
            pass
        for timer in sorted(self._committed | self._added):
            if timer in self._committed or timer in self._added:
                self._committed.discard(timer)
                self._added.discard(timer)
                self._removed.add(timer)
                yield timer

    def has_due(self, until: Milliseconds) -> bool:
        return until >= self._next_committed or (bool(self._heap) and self._heap[0][0] <= until)

    def is_committed(self, time: Milliseconds) -> bool:
        """Whether any timer for just this time was committed before this epoch."""
        if time < self._scanned:
            return any(timer[0] == time for timer in self._stored)
        if time < self._next_committed:
            return False
        committed = self._open()
        for group in self._groups:
            start = timer_key(group, self.state_id, time, b"")
            for _ in committed.range(start, timer_key(group, self.state_id, time + 1, b"")):
                return True
        return False

    def next_due(self) -> Milliseconds | None:
        """When the next timer is due, as far as is known (never later than it really is)."""
        times = [timer[0] for timer in self._added | self._committed]
        if self._next_committed != MAX_WATERMARK:
            times.append(self._next_committed)
        return min(times, default=None)

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """New timers, and removed ones that had been committed."""
        out: list[tuple[bytes, bytes | None]] = [(key, b"") for key in self._store_keys(self._added)]
        gone = self._removed - self._added
        out += [(key, None) for key in self._store_keys(gone & self._stored)]
        unseen = self._store_keys(gone - self._stored)
        if unseen:
            out += [(key, None) for key in self._open().get_many(unseen)]
        return out

    def _store_keys(self, timers: set[Timer]) -> list[bytes]:
        if not timers:
            return []
        ordered = list(timers)
        groups = self._key_groups.of_many([encoded for _, encoded in ordered], self._namespace).tolist()
        state_id = self.state_id
        return [timer_key(group, state_id, time, encoded) for group, (time, encoded) in zip(groups, ordered, strict=True)]

    def _load(self, until: Milliseconds) -> Milliseconds:
        """Bring the committed timers due by `until` into the heap, or the first of them if they are very many.

        Returns up to when the heap is complete now, and notes when the first of the others is due.
        """
        committed = self._open()
        after, horizon = MAX_WATERMARK, until
        share = max(1, AT_A_TIME // len(self._groups))
        for group in self._groups:
            start = timer_key(group, self.state_id, self._scanned, b"")
            stop = timer_key(group, self.state_id, MAX_WATERMARK, b"\xff")
            taken, last = 0, MIN_WATERMARK
            for key, _ in committed.range(start, stop):
                _, _, time, encoded = split_timer_key(key)
                if time > until:
                    after = min(after, time)
                    break
                if taken >= share and time > last:
                    horizon = min(horizon, last)
                    break
                taken, last = taken + 1, time
                timer = (time, encoded)
                self._stored.add(timer)
                if timer not in self._removed and timer not in self._added and timer not in self._committed:
                    self._committed.add(timer)
                    heappush(self._heap, timer)
        if horizon < until:
            self._scanned = self._next_committed = horizon + 1
        else:
            self._scanned = until if until == MAX_WATERMARK else until + 1
            self._next_committed = after
        return horizon
