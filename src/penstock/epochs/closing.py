"""Closing what a driver has opened, in bounded time."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.deadlines import Closing
from penstock.timing.durations import Duration, to_ms

log = logging.getLogger("penstock")


class OpenEnds:
    """What is open, in order: sources, sinks, compaction, mirror. Closed after a take-over that failed, and at the end."""

    def __init__(self, within: Duration) -> None:
        self._within_s = to_ms(within) / 1000
        self._open: list[tuple[str, Callable[[], object]]] = []

    def add(self, what: str, close: Callable[[], object]) -> None:
        """`what` is for people, such as "the mirror"."""
        self._open.append((what, close))

    def closing(self) -> Closing:
        return Closing(self._within_s)

    def close(self, closing: Closing | None = None) -> None:
        closing = closing or self.closing()
        found, self._open = self._open, []
        for what, close in found:
            closing.end(what, close)


def quietly(action: Callable[[], None]) -> None:
    try:
        action()
    except Exception as error:
        log.warning("while closing: %s", error)
