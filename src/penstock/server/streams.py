"""Open subscriptions: so many for each caller, and all of them end with the server."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

from penstock.query.errors import TooManyRequestsError

MOST = 64


class Streams:
    """Counts the subscriptions of each caller."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._open: Counter[str] = Counter()

    def held(self, caller: str, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The same events, counted while they are taken; refused if the caller has too many already."""
        if self._open[caller] >= self._most:
            raise TooManyRequestsError(f"there are {self._most} subscriptions of yours", hint="close one")

        async def counted() -> AsyncIterator[bytes]:
            self._open[caller] += 1
            try:
                async for event in events:
                    yield event
            finally:
                self._open[caller] -= 1

        return counted()
