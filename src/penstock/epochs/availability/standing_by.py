"""A standby's waiting: looks at the storage, one after another, until there is a verdict (see `standby.py`).

Each look is made in a thread, so that a standby can be stopped while the storage does not answer. A new one begins only when the
one before has ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.epochs.availability.standby import SHARE, End, TakeOver, Verdict, Wait, Watch, observe
from penstock.errors import NotFoundError, PenstockError, StorageError
from penstock.jobs.terms import JobInfo, read_job
from penstock.storage import Storage

log = logging.getLogger("penstock")

PREPARE_EVERY_S = 20.0
ANSWER_S = 5.0
"""How long a standby that ends waits for the job's id."""

T = TypeVar("T")


class Question(Generic[T]):
    """A question to the storage, asked in a thread: the answer may never come."""

    def __init__(self, ask: Callable[[], T], monotonic: Callable[[], float]) -> None:
        self.began = monotonic()
        self.ended = self.began
        self._ask = ask
        self._monotonic = monotonic
        self._found: list[T] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-look", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._found.append(self._ask())
        except Exception as error:
            self._error = error
        self.ended = self._monotonic()

    def is_answered(self, timeout: float) -> bool:
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def answer(self) -> T:
        if self._error is not None:
            raise self._error
        return self._found[0]


def stand_by(
    storage: Storage,
    lease_s: float,
    *,
    tell: Callable[[str], None],
    prepare: Callable[[], None],
    stopping: Callable[[], bool],
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
    rest_s: float = 0.0,
) -> TakeOver | End | None:
    """Wait until the job is to be taken over or is over; None if asked to stop. Not taken over before `rest_s` is over."""
    watch = Watch(lease_s)
    poll = min(1.0, lease_s / 10)
    rested = monotonic() + rest_s
    shown = ""
    prepared: float | None = None
    while not stopping():
        verdict = _look(storage, watch, lease_s, poll, stopping, monotonic)
        if verdict is None:
            continue
        if isinstance(verdict, End) or (isinstance(verdict, TakeOver) and monotonic() >= rested):
            return verdict
        if isinstance(verdict, Wait) and verdict.because != shown:
            shown = verdict.because
            tell(f"stands by: {shown}")
        if prepared is None or monotonic() - prepared > PREPARE_EVERY_S:
            _prepare(prepare)
            prepared = monotonic()
            continue  # that may have taken a while
        sleep(poll)
    return None


def _look(
    storage: Storage,
    watch: Watch,
    lease_s: float,
    poll: float,
    stopping: Callable[[], bool],
    monotonic: Callable[[], float],
) -> Verdict | None:
    """What one look comes to; None if asked to stop meanwhile."""
    look = Question(lambda: observe(storage), monotonic)
    warned = False
    while not look.is_answered(poll):
        if stopping():
            return None
        if not warned and monotonic() - look.began > SHARE * lease_s:
            warned = True
            log.warning("the storage %s does not answer: its driver cannot be watched", storage.uri)
    try:
        return watch.look(look.answer(), look.began, look.ended)
    except PenstockError as error:
        watch.blind()
        return Wait(f"the storage cannot be read: {error.what}")
    except Exception as error:
        watch.blind()
        return Wait(f"the storage cannot be read: {type(error).__name__}: {error}")


def _prepare(prepare: Callable[[], None]) -> None:
    try:
        prepare()
    except Exception as error:
        log.warning("this standby could not get ready; trying again: %s", error)


def job_of(storage: Storage, monotonic: Callable[[], float]) -> JobInfo | None:
    """The job in a storage; None if there is none, or if the storage does not answer."""
    asked = Question(lambda: read_job(storage), monotonic)
    try:
        return asked.answer() if asked.is_answered(ANSWER_S) else None
    except NotFoundError:
        return None
    except StorageError as error:
        log.warning("the job's id is not known: %s", error.what)
        return None
