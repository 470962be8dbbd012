"""The deadline of a stop: a job that was asked to stop ends in bounded time, whatever it waits for.

    asked to ── `stop_within` ──→ nothing is waited for any longer: the epoch that runs is not committed, Spark's job is given up
                ── as long again, for closing ──→ the main thread is interrupted, as by a second Ctrl-C
                    ── `LAST_S` ──→ the process exits on the spot

Asked by a signal, or by `penstock stop`: a loop that is held up does not read requests, so they are looked for here. A drain
has no deadline: it runs epochs, which take their time; a plain stop after it has one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from penstock.deadlines import ended_within
from penstock.errors import StorageError

log = logging.getLogger("penstock")

LAST_S = 5.0
HELD_UP_S = 3.0
"""A loop that has not come round for this long may have missed a request."""
LOOK_EVERY_S = 1.0
LOOK_S = 10.0
"""A storage that has not answered within this time is not waited for."""


class StopDeadline:
    """Looks on while a job runs, in a thread of its own.

    `asked`: by what the job was asked to stop, "" if it was not. `look`: reads requests, which may take long; called when
    `held_up` says for how many seconds the loop has not come round.
    """

    def __init__(
        self,
        within_s: float,
        *,
        asked: Callable[[], str],
        held_up: Callable[[], float],
        look: Callable[[], str],
        give_up: Callable[[str], None],
        interrupt: Callable[[str], None],
        end: Callable[[str], None],
    ) -> None:
        self._within_s = within_s
        self._asked = asked
        self._held_up = held_up
        self._look = look
        self._steps = [(within_s, give_up), (2 * within_s, interrupt), (2 * within_s + LAST_S, end)]
        self._looked = 0.0
        self._over = threading.Event()

    def __enter__(self) -> StopDeadline:
        threading.Thread(target=self._keep, name="penstock-stop", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()

    def _keep(self) -> None:
        tick = min(0.25, self._within_s / 10)
        by, waited, steps = "", 0.0, list(self._steps)
        last = time.monotonic()
        while steps and not self._over.wait(tick):
            now = time.monotonic()
            passed, last = min(now - last, 2 * tick), now  # a process that was stopped has not had this time
            if not by:
                by = self._asked() or self._look_for_requests(now)
                last = time.monotonic()
                continue
            waited += passed
            after_s, step = steps[0]
            if waited >= after_s:
                del steps[0]
                step(f"asked to stop by {by}, it had not ended after {waited:.0f} s")

    def _look_for_requests(self, now: float) -> str:
        if now - self._looked < LOOK_EVERY_S or self._held_up() < min(HELD_UP_S, self._within_s / 2):
            return ""
        found: list[str] = []
        try:
            ended_within(LOOK_S, lambda: found.append(self._look()), "penstock-stop-requests")
        except StorageError as error:
            log.debug("looking for requests: %s", error)
        self._looked = time.monotonic()
        return found[0] if found else ""
