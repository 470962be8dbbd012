"""What is done ahead, in a thread of its own: Spark takes seconds to start, and and a start has other things to do meanwhile.

    begun ── ends ──────────────────────→ whoever needs Spark goes on at once
      │ └─── fails ─────────────────────→ whoever needs Spark gets the error
      └───── not wanted any more (stop) → its JVM is killed, and the thread ends of itself

Law: nobody else uses Spark while it runs; `wait` comes first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger("penstock")

LOOK_S = 0.02
"""A JVM that is to be killed may not be there yet: so often it is looked for."""


class WarmUp:
    """One at a time; done as soon as it is made."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-spark-warm-up", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._action()
        except Exception as error:
            self._error = error

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def wait(self) -> None:
        """Raises what it raised, once."""
        self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def stop(self, seconds: float, kill: Callable[[], None]) -> None:
        """End it; returns in bounded time. `kill`: ends what it waits for, if that is there already."""
        looks = max(1, round(seconds / LOOK_S))
        while looks > 0 and self._thread.is_alive():
            kill()
            self._thread.join(LOOK_S)
            looks -= 1
        if self._thread.is_alive():
            log.warning("Spark that starts did not end in %g s, and is left behind", seconds)
