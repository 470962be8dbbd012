"""One batch at a time, from the thread in which Spark calls us to the epoch loop, and the word "committed" back.

    Spark's thread                            the loop's thread
    offer(batch)  ── batch ─────────────────→ current()
        waits                                 … an epoch …
        returns True  ←───────────────────── settle(number)
        returns False ←───────────────────── close()

Nobody waits with the lock held but on the condition itself, and both sides may come in any order.
"""

from __future__ import annotations

import threading

import msgspec

from penstock.connectors.spark_feed.batches import Piece


class Offer(msgspec.Struct, frozen=True):
    """A batch that is written and waits to be read."""

    number: int
    pieces: list[Piece]


class Handover:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._offer: Offer | None = None
        self._settled = -1
        self._closed = False

    def offer(self, offer: Offer) -> bool:
        """Wait until the batch is committed; False when the feed is closed first."""
        with self._changed:
            self._offer = offer
            while self._settled < offer.number and not self._over():
                self._changed.wait(timeout=1.0)
            self._offer = None
            return self._settled >= offer.number

    def current(self) -> Offer | None:
        with self._changed:
            return self._offer

    def settle(self, number: int) -> None:
        with self._changed:
            self._settled = max(self._settled, number)
            self._changed.notify_all()

    @property
    def settled(self) -> int:
        with self._changed:
            return self._settled

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        with self._changed:
            return self._over()

    def _over(self) -> bool:
        return self._closed or not threading.main_thread().is_alive()
