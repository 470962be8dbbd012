"""What windows mean, said as plainly as possible: every window's records in a list, every result computed from all of them.

Written from the semantics, not from the operator: no state, no timers, no epochs. Slow on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

END = 2**63 - 1
START = -(2**63)

Pair = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """Windows as plain numbers. `trigger`: (what, number, purging); `evictor`: (what, number, after)."""

    windows: tuple[Any, ...]
    time: str = "event"
    trigger: tuple[str, int, bool] = ("default", 0, False)
    evictor: tuple[str, int, bool] | None = None
    lateness: int = 0


@dataclass
class Contents:
    """A window of a key: its records with their times, how many came since it last fired, when it fires next."""

    records: list[tuple[Any, int]] = field(default_factory=list)
    count: int = 0
    following: int | None = None


class Naive:
    """Takes records, watermarks and the clock, and says what comes out."""

    def __init__(self, case: Case, compute: Callable[[list[Any]], Any]) -> None:
        self.case = case
        self.compute = compute
        self.watermark = START
        self.clock = 0
        self.live: dict[tuple[Any, Pair], Contents] = {}
        self.out: list[Any] = []
        self.late: list[tuple[Any, int]] = []

    # --- records -----------------------------------------------------------------------------------------------------------

    def record(self, key: Any, value: Any, time: int) -> None:
        moment = time if self.case.time == "event" else self.clock
        taken = False
        for window in self.assigned(moment):
            at = self.merged(key, window) if self.case.windows[0] == "session" else window
            if at is None or self.is_late(at):
                continue
            taken = True
            contents = self.live.setdefault((key, at), Contents())
            contents.records.append((value, time))
            self.on_record(key, at, contents, time)
        if not taken and self.case.time == "event" and time + self.case.lateness <= self.watermark:
            self.late.append((value, time))

    def assigned(self, moment: int) -> list[Pair]:
        kind, *numbers = self.case.windows
        if kind == "global":
            return [(START, END)]
        if kind == "session":
            return [(moment, moment + numbers[0])]
        size, slide, offset = numbers
        first = (moment - size) // slide - 2
        starts = [n * slide + offset for n in range(first, moment // slide + 3)]
        return [(start, start + size) for start in starts if start <= moment < start + size]

    def merged(self, key: Any, window: Pair) -> Pair | None:
        touching = sorted(w for k, w in self.live if k == key and w[0] <= window[1] and w[1] >= window[0])
        cover = (min(w[0] for w in [*touching, window]), max(w[1] for w in [*touching, window]))
        if self.is_late(cover):
            return None
        parts = [self.live.pop((key, w)) for w in touching]
        if parts:
            one = Contents([r for part in parts for r in part.records], sum(part.count for part in parts))
            one.following = min((p.following for p in parts if p.following is not None), default=None)
            self.live[key, cover] = one
        return cover

    def last(self, window: Pair) -> int:
        return window[1] - 1 if window[1] < END else END

    def cleanup(self, window: Pair) -> int:
        lateness = self.case.lateness if self.case.time == "event" else 0
        return min(self.last(window) + lateness, END)

    def is_late(self, window: Pair) -> bool:
        return self.case.time == "event" and self.case.windows[0] != "global" and self.cleanup(window) <= self.watermark

    # --- triggers ----------------------------------------------------------------------------------------------------------

    def on_record(self, key: Any, window: Pair, contents: Contents, time: int) -> None:
        what, number, _ = self.case.trigger
        over = self.last(window) <= self.watermark
        if what in ("count", "early"):
            counting = what == "count" or not over
            contents.count += counting
            if counting and contents.count >= number:
                contents.count = 0
                self.fire(key, window, contents)
                return
        if what == "continuous" and not over and contents.following is None:
            contents.following = min(time - time % number + number, self.last(window))
        if over and self.case.time == "event" and what in ("default", "continuous", "early"):
            self.fire(key, window, contents)

    def alarms(self, window: Pair, contents: Contents, since: int) -> Iterator[int]:
        """When something is due for the window. The next firing may be due already, for a record that is behind."""
        if contents.following is not None:
            yield contents.following
        if self.case.trigger[0] != "count" and self.last(window) > since:
            yield self.last(window)
        if since < self.cleanup(window) < END:
            yield self.cleanup(window)

    def pass_time(self, until: int) -> None:
        """Everything that is due by then, in order of time."""
        since = self.watermark if self.case.time == "event" else self.clock - 1
        while True:
            due = [
                (alarm, repr(key), window, key)
                for (key, window), contents in self.live.items()
                for alarm in self.alarms(window, contents, since)
                if alarm <= until
            ]
            if not due:
                return
            now = min(due)[0]
            for _, _, window, key in sorted({d[:3]: d for d in due if d[0] == now}.values()):
                self.on_alarm(key, window, now)
            since = max(since, now)

    def on_alarm(self, key: Any, window: Pair, now: int) -> None:
        what, number, _ = self.case.trigger
        contents = self.live[key, window]
        if now == self.last(window) and what != "count":
            contents.count = 0
            contents.following = None
            self.fire(key, window, contents)
        elif now == contents.following:
            contents.following = min(now + number, self.last(window))
            self.fire(key, window, contents)
        if now == self.cleanup(window) < END:
            del self.live[key, window]

    def fire(self, key: Any, window: Pair, contents: Contents) -> None:
        if not contents.records:
            return
        kept = contents.records
        if self.case.evictor is not None and not self.case.evictor[2]:
            kept = self.evicted(kept)
        if kept:
            self.out.append(((key, *window, self.compute([value for value, _ in kept])), self.last(window)))
        if self.case.evictor is not None and self.case.evictor[2]:
            kept = self.evicted(kept)
        contents.records = [] if self.case.trigger[2] else kept

    def evicted(self, records: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        assert self.case.evictor is not None
        what, number, _ = self.case.evictor
        if what == "count":
            return records[-number:] if number else []
        latest = max(time for _, time in records)
        return [record for record in records if record[1] > latest - number]

    # --- time --------------------------------------------------------------------------------------------------------------

    def to_watermark(self, watermark: int) -> None:
        if watermark > self.watermark:
            if self.case.time == "event":
                self.pass_time(watermark)
            self.watermark = watermark

    def to_clock(self, now: int) -> None:
        if self.case.time == "processing":
            self.pass_time(now)
        self.clock = now
