"""Questions and answers of one task: which calls are made when.

A question is what one call is given: a record, some records, some keys. All here runs in the thread of the event loop, but what
`PendingBatch` says of itself: answers are only added to it, so that another thread may look.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any, Protocol

from penstock.failpoints import fail_point
from penstock.ids import StepId
from penstock.records import Batch
from penstock.runtime.awaited.caller import AsyncCaller

_PATIENCE_S = 10.0
"""How long calls that are cancelled may take to end."""


class PendingBatch:
    """A batch whose records have been asked about, and the answers so far."""

    __slots__ = ("answered", "answers", "batch", "left", "passed_on", "refused", "turn", "values")

    def __init__(self, batch: Batch, turn: tuple[StepId | None, int] = (None, 0)) -> None:
        self.batch = batch
        self.turn = turn
        """The loop that it came in, and how often it has been through that."""
        self.values = batch.values()
        self.answers: list[Any] = [None] * len(self.values)
        self.refused: dict[int, tuple[Exception, Any]] = {}
        """By row, what was raised, and by which function; None: by the one that is asked."""
        self.answered: list[int] = []
        """The rows that have an answer, or were refused, as they came."""
        self.left = len(self.values)
        self.passed_on = 0
        """So many of `answered` have been passed on."""

    def answer(self, row: int, answer: Any) -> None:
        self.answers[row] = answer
        self.answered.append(row)
        self.left -= 1

    def refuse(self, row: int, error: Exception, function: Any = None) -> None:
        self.refused[row] = error, function
        self.answered.append(row)
        self.left -= 1


class Question(Protocol):
    """What one call is about."""

    @property
    def argument(self) -> Any:
        """What the function is given."""
        ...

    def answer(self, answer: Any) -> None: ...

    def refuse(self, error: Exception) -> None: ...

    def record(self) -> tuple[Any, int]:
        """The first record that it is about, for messages, and its timestamp."""
        ...


class Asking:
    """Asks questions, so many at once. `fails`: the first one that is refused ends it."""

    def __init__(self, caller: AsyncCaller, *, fails: bool) -> None:
        self.failed: tuple[Question, BaseException] | None = None
        self._caller = caller
        self._fails = fails
        self._loop = caller.events.loop
        self._waiting: deque[Question] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._met: Callable[[], bool] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._over = False
        self._calls, self._call_s = 0, 0.0
        caller.freed = self._begin

    async def ask(self, questions: Callable[[], Iterable[Question]]) -> None:
        """Ask; over when the last question has been put, and has only to be answered."""
        self._waiting.extend(questions())
        self._begin()
        await self.until(lambda: not self._waiting)

    async def until(self, met: Callable[[], bool]) -> None:
        """Until something is the case, or a question has failed."""
        while not met() and self.failed is None:
            self._met, self._waiter = met, self._loop.create_future()
            await self._waiter

    async def cancel(self) -> None:
        """Nobody waits for an answer any more."""
        self._over = True
        self._waiting.clear()
        self._caller.freed = lambda: None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE_S)

    def counted(self) -> None:
        """Add what was done to the step's counters."""
        if self._calls:
            self._caller.count("calls", self._calls)
            self._caller.count("call-ms", round(self._call_s * 1000))
            self._calls, self._call_s = 0, 0.0

    def _begin(self) -> None:
        while self._waiting and len(self._tasks) < self._caller.capacity and self.failed is None:
            self._tasks.add(self._loop.create_task(self._call(self._waiting.popleft())))

    async def _call(self, question: Question) -> None:
        since = perf_counter()
        try:
            fail_point("async:call")
            answer = await self._caller.ask(question.argument)
        except asyncio.CancelledError as error:
            if self._over:
                raise
            self._refused(question, RuntimeError("the call was cancelled from within").with_traceback(error.__traceback__))
        except BaseException as error:
            self._refused(question, error)
        else:
            try:
                question.answer(answer)
            except Exception as error:
                self._refused(question, error)
        self._calls += 1
        self._call_s += perf_counter() - since
        task = asyncio.current_task()
        assert task is not None
        self._tasks.discard(task)
        self._begin()
        if self._waiter is not None and self._met is not None and (self.failed is not None or self._met()):
            self._waiter.set_result(None)
            self._waiter = self._met = None

    def _refused(self, question: Question, error: BaseException) -> None:
        if not self._fails and isinstance(error, Exception):
            question.refuse(error)
        elif self.failed is None:
            self.failed = question, error
