"""The operator of a step that asks: batches wait for their answers, and watermarks for the batches before them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from penstock.contexts import RuntimeContext
from penstock.ids import Milliseconds, StepId
from penstock.plan.definition import ErrorPolicy
from penstock.records import NO_TIMESTAMP, Batch, Records, carried
from penstock.runtime.awaited.asking import Asking, PendingBatch, Question
from penstock.runtime.awaited.caller import AsyncCaller
from penstock.runtime.frames import Payload, unkeyed
from penstock.runtime.operators.observer import Invocation, Observer
from penstock.runtime.operators.operator import Operator
from penstock.runtime.operators.stateless import repeated
from penstock.runtime.ordering import ROUND_ROWS
from penstock.runtime.services import Services


class AwaitedOperator(Operator):
    """Asks about each batch, and passes on what became of it."""

    observed = frozenset(("record",))
    one_each = False
    """The answer is what is emitted."""
    maker: Any = None
    """The user's function that makes of an answer what is emitted, if there is one."""

    def __init__(self, step: StepId, services: Services, made: Callable[[bool], AsyncCaller], errors: ErrorPolicy) -> None:
        super().__init__(step, services)
        self.errors = errors
        in_place = self.observer is not None and self.observer.one_by_one
        self.caller: AsyncCaller = services.opened(step, made(in_place))
        self.context: RuntimeContext = services.contexts[step]
        self._asking = Asking(self.caller, fails=errors == "fail")
        self._queue: deque[PendingBatch | _Time] = deque()
        self._held = 0
        """Records that came in and have not been passed on."""
        self._most = max(ROUND_ROWS, 2 * self.caller.terms.capacity)

    # --- what a step of a kind does ----------------------------------------------------------------------------------------

    def questions(self, pending: PendingBatch) -> Iterable[Question]:
        """What there is to ask about a batch. In the thread of the event loop."""
        raise NotImplementedError

    def prepared(self, pending: PendingBatch) -> None:
        """A batch is about to be asked about."""

    def made(self, record: Any, answer: Any) -> list[Any]:
        """What is emitted for a record."""
        raise NotImplementedError

    # --- what comes in -----------------------------------------------------------------------------------------------------

    def on_batch(self, batch: Payload) -> None:
        self.records_in += len(batch)
        if not len(batch):
            return
        rounds = self.services.rounds
        pending = PendingBatch(unkeyed(batch), (rounds.loop, rounds.done))
        self.prepared(pending)
        self._queue.append(pending)
        self._held += len(pending.values)
        if self.observer is not None and self.observer.one_by_one:
            self._ask_one_by_one(pending, self.observer)
        else:
            self.caller.events.run(self._asking.ask(partial(self.questions, pending)))
        self._check()
        self._pass_on()
        while self._held > self._most:
            self._wait(partial(_is_answered, self._first()))

    def on_watermark(self, watermark: Milliseconds | None) -> None:
        if self._queue:
            self._queue.append(_Time(watermark))
            self._pass_on()
        else:
            super().on_watermark(watermark)

    def settle(self) -> None:
        while self._queue:
            self._wait(partial(_is_answered, self._first()))

    def on_end(self) -> None:
        self.settle()

    def finish(self) -> None:
        self.settle()
        self._asking.counted()

    def abort(self) -> None:
        self._queue.clear()
        self.caller.events.run(self._asking.cancel())

    # --- what goes out -----------------------------------------------------------------------------------------------------

    def _first(self) -> PendingBatch:
        return next(one for one in self._queue if isinstance(one, PendingBatch))

    def _wait(self, met: Callable[[], bool]) -> None:
        self.caller.events.run(self._asking.until(met))
        self._check()
        self._pass_on()

    def _check(self) -> None:
        """Raise what a call raised, if the step is to fail then."""
        if self._asking.failed is not None:
            question, error = self._asking.failed
            if not isinstance(error, Exception):
                raise error
            record, time = question.record()
            self._tell(record, time, error, [])
            raise self.user_error(error, self.caller.function, record) from error

    def _pass_on(self) -> None:
        """Whatever may go on now."""
        in_order = self.ordered or self.caller.terms.ordered
        queue = self._queue
        while queue:
            first = queue[0]
            if isinstance(first, _Time):
                queue.popleft()
                super().on_watermark(first.watermark)
            elif first.left:
                break
            else:
                queue.popleft()
                self._emit(first, None if in_order else first.answered[first.passed_on :])
        if not in_order:
            for one in queue:
                if isinstance(one, _Time):
                    break
                if rows := one.answered[one.passed_on :]:
                    one.passed_on += len(rows)
                    self._emit(one, rows)

    def _emit(self, pending: PendingBatch, rows: list[int] | None) -> None:
        """Emit what became of the rows; None: of all of them, in order."""
        with self.services.rounds.turn(*pending.turn):
            self._emit_rows(pending, rows)

    def _emit_rows(self, pending: PendingBatch, rows: list[int] | None) -> None:
        self._held -= len(pending.values) if rows is None else len(rows)
        if self.one_each and rows is None and not pending.refused and self.observer is None:
            self.outputs.emit(Records(pending.answers, *carried(pending.batch)))
            return
        out: list[Any] = []
        ends: list[int] = []
        whole = range(len(pending.values)) if rows is None else rows
        for row in whole:
            out += self._made(pending, row)
            ends.append(len(out))
            pending.answers[row] = None
        chosen = None if rows is None else np.asarray(rows, dtype=np.int64)
        self.outputs.emit(Records(out, *repeated(carried(pending.batch, chosen), ends)))

    def _made(self, pending: PendingBatch, row: int) -> list[Any]:
        """What is emitted for a row: nothing, if it was refused."""
        record, time = pending.values[row], time_of(pending.batch, row)
        error, function = pending.refused.pop(row, (None, None))
        made: list[Any] = []
        if error is None:
            try:
                made = self.made(record, pending.answers[row])
            except Exception as raised:
                error, function = raised, self.maker
        self._tell(record, time, error, made)
        if error is not None:
            function = self.caller.function if function is None else function
            if self.errors == "fail":
                raise self.user_error(error, function, record) from error
            self.set_aside(error, function, record, time)
        return made

    # --- somebody is looking -----------------------------------------------------------------------------------------------

    def _tell(self, record: Any, time: int, error: Exception | None, made: list[Any]) -> None:
        """Show an observer what became of a record."""
        observer = self.observer
        if observer is None or observer.one_by_one:
            return
        one = Invocation("record", record, time, self.watermark)

        def proceed() -> None:
            if error is not None:
                raise error
            one.emits(((value, time) for value in made), None, {})

        try:
            observer.on_call(one, proceed)
        except Exception as raised:
            if raised is not error:
                raise

    def _ask_one_by_one(self, pending: PendingBatch, observer: Observer) -> None:
        for question in self.questions(pending):
            record, time = question.record()
            one = Invocation("record", record, time, self.watermark)
            try:
                question.answer(observer.on_call(one, partial(self.caller.ask_here, question.argument)))
            except Exception as error:
                if self.errors == "fail":
                    raise self.user_error(error, self.caller.function, record) from error
                question.refuse(error)


class _Time:
    """A watermark that waits for the batches before it."""

    __slots__ = ("watermark",)

    def __init__(self, watermark: Milliseconds | None) -> None:
        self.watermark = watermark


def time_of(batch: Batch, row: int) -> int:
    """The timestamp of a row."""
    return NO_TIMESTAMP if batch.timestamps is None else int(batch.timestamps[row])


def _is_answered(pending: PendingBatch) -> bool:
    return not pending.left
