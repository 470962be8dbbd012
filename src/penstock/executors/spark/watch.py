"""A watch beside Spark's jobs: one that nobody works on any more is given up, instead of being waited for without end.

    a job runs ── it ends soon ───────────────────────────────────────→ never looked at
       │  ├────── executors run tasks, however long these take ───────→ waited for
       │  ├────── its executors are gone, for a third of `stall_s` ───→ given up
       │  ├────── executors run none of its tasks, for `stall_s` ─────→ given up
       │  └────── the JVM does not answer, for `stall_s` ─────────────→ given up
       └───────── somebody does not want to wait (`interrupt`) ───────→ given up

A restarted master, for one, knows nothing of the jobs of its predecessor: workers end their executors, and the driver is never
told. Laws:
- Whoever started the job gets an error from the call that it waits in, and `because` says why: nothing is abandoned silently.
- First Spark is asked to cancel the job. If that does not end it, the connection is cut: by ending the JVM, if it is ours.
- Time in which this process did not run (SIGSTOP, a suspended machine) does not count.
- It costs nothing: one thread, which looks at the clock; it asks the JVM only about jobs that are some seconds old.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Protocol

log = logging.getLogger("penstock")

LONGEST_TICK_S = 1.0
START_S = 180.0
"""A Spark that starts is given so long, at least: it may have to wait for a master, and has nothing to ask yet."""
FIRST_S = 60.0
"""So is its first job, which waits for executors that start."""
CANCEL_S = 5.0
"""A cancelled job has so long to end."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look at Spark's scheduler shows: executors (a local Spark is its own), and tasks that they run.

    `lost`: there were executors, and Spark does not let them go by itself."""

    executors: int
    running: int
    lost: bool = False


class Stalls:
    """What the looks at a job come to. Pure: time is handed in."""

    def __init__(self, stall_s: float) -> None:
        self._stall_s = stall_s
        self._alone_s = stall_s / 3
        self._alone = self._idle = self._silent = 0.0

    def see(self, sight: Sight | None, passed: float) -> str:
        """Why the job is to be given up; "" if it is not. `sight`: None, if the JVM has not answered the last question yet.
        `passed`: seconds since the last look."""
        self._silent = self._silent + passed if sight is None else 0.0
        if self._silent >= self._stall_s:
            return f"its JVM has not answered for {self._silent:.0f} s"
        if sight is not None:
            self._alone = self._alone + passed if sight.executors == 0 else 0.0
            self._idle = self._idle + passed if sight.running == 0 else 0.0
        if self._alone >= (self._alone_s if sight is not None and sight.lost else self._stall_s):
            return f"it has had no executor for {self._alone:.0f} s: was its master started anew, or are all workers gone?"
        if self._idle >= self._stall_s:
            return f"no executor has run a task of it for {self._idle:.0f} s"
        return ""


class Engine(Protocol):
    """What is watched. Every method may hang."""

    def look(self) -> Sight | None:
        """None: there is nothing to ask yet."""

    def cancel(self) -> None:
        """Ask for all jobs to be cancelled."""

    def cut(self) -> None:
        """Break the connection that a job is waited for on."""


@dataclass(slots=True, eq=False)
class Watched:
    """Something that Spark was told to do. `because`: why it was given up."""

    what: str
    patience_s: float
    age: float = 0.0
    because: str = ""
    over: threading.Event = field(default_factory=threading.Event)


class JobWatch:
    """Watches one job at a time. Its thread starts with the first one."""

    def __init__(self, engine: Engine, stall_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._stall_s = stall_s
        self._tick_s = min(LONGEST_TICK_S, stall_s / 20)
        self._monotonic = monotonic
        self._current: Watched | None = None
        self._refusal = ""
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._questions: SimpleQueue[_Question | None] = SimpleQueue()

    # --- whoever has a job -------------------------------------------------------------------------------------------------

    def begin(self, what: str, patience_s: float = 0.0) -> Watched:
        """From now on a job is waited for, for `patience_s` at least."""
        watched = Watched(what, patience_s, because=self._refusal)
        self._current = watched
        if self._thread is None:
            watching = (self._closed, self._questions)
            self._thread = threading.Thread(target=self._keep, args=watching, name="penstock-spark-watch", daemon=True)
            self._thread.start()
        return watched

    def end(self, watched: Watched) -> None:
        if self._current is watched:
            self._current = None
        watched.over.set()

    def interrupt(self, because: str) -> None:
        """Give up what runs, and all that is begun from now on. From any thread; returns when nothing is waited for any more."""
        self._refusal = because
        watched = self._current
        if watched is not None:
            self._give_up(watched, because)

    @property
    def refusal(self) -> str:
        """Why nothing is to be begun any more."""
        return self._refusal

    @property
    def idle(self) -> bool:
        """Is there no job that is waited for?"""
        return self._current is None

    def close(self) -> None:
        """Watch no more, until another job is begun: a standby that is replaced as the driver stands by again."""
        self._closed.set()
        self._questions.put(None)
        self._closed, self._questions, self._thread = threading.Event(), SimpleQueue(), None

    # --- the thread --------------------------------------------------------------------------------------------------------

    def _keep(self, closed: threading.Event, questions: SimpleQueue[_Question | None]) -> None:
        threading.Thread(target=_answer, args=(questions,), name="penstock-spark-ask", daemon=True).start()
        watched: Watched | None = None
        question: _Question | None = None
        stalls = Stalls(self._stall_s)
        last = self._monotonic()
        while not closed.wait(self._tick_s):
            now = self._monotonic()
            passed, last = min(now - last, 2 * self._tick_s), now
            if watched is not self._current:
                watched = self._current
                stalls = Stalls(max(self._stall_s, watched.patience_s if watched is not None else 0.0))
            if watched is None or watched.because:
                continue
            watched.age += passed
            if watched.age < 5 * self._tick_s:
                continue
            sight: Sight | None = None
            if question is None or question.answered.is_set():
                sight = question.sight if question is not None and question.of is watched else None
                question = _Question(self._engine.look, of=watched)
                questions.put(question)
            because = stalls.see(sight, passed)
            if because and watched is self._current:
                self._give_up(watched, because)

    def _give_up(self, watched: Watched, because: str) -> None:
        def cancel() -> None:
            if not watched.over.is_set():  # by now there may be another session
                self._engine.cancel()

        watched.because = because
        log.debug("giving up %s: %s", watched.what, because)
        self._questions.put(_Question(cancel))
        if not watched.over.wait(min(CANCEL_S, self._stall_s)) and self._current is watched:
            self._engine.cut()


class _Question:
    """Something to ask the JVM, which may never answer."""

    def __init__(self, ask: Callable[[], Sight | None] | Callable[[], None], of: Watched | None = None) -> None:
        self._ask = ask
        self.of = of
        self.sight: Sight | None = None
        self.answered = threading.Event()

    def put(self) -> None:
        try:
            self.sight = self._ask()
        except Exception as error:  # it is gone, or going: whoever waits for the job hears of it
            log.debug("asking Spark: %s", error)
        self.answered.set()


def _answer(questions: SimpleQueue[_Question | None]) -> None:
    """A thread that may hang in a question; the next one is put when the connection is cut."""
    while (question := questions.get()) is not None:
        question.put()
