"""Things that are waited for, but not for ever.

What is waited for runs in a thread of its own. If it has not ended in time it is left behind: such a thread keeps no process from
ending.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

log = logging.getLogger("penstock")

LEAST_S = 1.0
"""What every part of a closing gets, however long those before it took."""


def ended_within(seconds: float, action: Callable[[], object], name: str = "penstock-bounded") -> bool:
    """Did the action end in time? Raises what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if thread.is_alive():
        return False
    if raised:
        raise raised[0]
    return True


class Closing:
    """Ends the parts of something one after another, within a time that they share. One that fails or hangs stops no other."""

    def __init__(self, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._until = monotonic() + seconds
        self.left_behind: list[str] = []
        """What did not end in time."""

    @property
    def left_s(self) -> float:
        return max(LEAST_S, self._until - self._monotonic())

    def end(self, what: str, action: Callable[[], object]) -> None:
        """`what` is for people, such as "the mirror"."""
        began = self._monotonic()
        try:
            if not ended_within(self.left_s, action, "penstock-closing"):
                self.left_behind.append(what)
                log.warning("while closing: %s did not end in %.0f s, and is left behind", what, self._monotonic() - began)
        except Exception as error:
            log.warning("while closing: %s", error)


class OpenEnds:
    """What is open, in order, each with a name for people. All is closed within `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: list[tuple[str, Callable[[], object]]] = []

    def add(self, what: str, close: Callable[[], object]) -> None:
        self._open.append((what, close))

    def closing(self) -> Closing:
        return Closing(self._seconds)

    def close(self, closing: Closing | None = None) -> None:
        closing = closing or self.closing()
        found, self._open = self._open, []
        for what, close in found:
            closing.end(what, close)
