"""async_map and async_flat_map: a coroutine, or a function in a thread, for each record or for some at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from penstock.changes import ANY_CHANGES, APPENDS, Changes
from penstock.errors import ReturnedValueError
from penstock.functions import Call, call_of, function_location, life_cycle
from penstock.ids import StepId
from penstock.plan.definition import Definition
from penstock.runtime.awaited.asking import PendingBatch, Question
from penstock.runtime.awaited.caller import AsyncCaller
from penstock.runtime.awaited.operator import AwaitedOperator, time_of
from penstock.runtime.awaited.terms import CallTerms
from penstock.runtime.operators.operator import Operator
from penstock.runtime.operators.returned import as_records
from penstock.runtime.services import Services


@dataclass(frozen=True, slots=True, kw_only=True)
class AsyncMap(Definition):
    """Asks by a user's function, and emits what it answers."""

    what: Literal["async_map", "async_flat_map"]
    body: Any
    terms: CallTerms
    asks_outside: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return self.what

    @property
    def method(self) -> str:
        """What the function is called by, if it is a class."""
        return self.what.removeprefix("async_") if self.terms.threads else "async_invoke"

    def function(self) -> Any:
        return self.body

    def calls(self) -> tuple[Call, ...]:
        argument = "value" if self.terms.batch is None else "values"
        flat, threads = self.what == "async_flat_map", self.terms.threads
        call = call_of(self.body, self.method, argument, several=flat, awaited=None if threads else True)
        return call, *life_cycle(self.body, awaited=True)

    @property
    def accepts(self) -> Changes:
        return ANY_CHANGES if self.terms.ordered else APPENDS

    def describe(self) -> dict[str, str]:
        return {"calls": self.terms.describe()}

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        operator = AsyncMapOperator if self.what == "async_map" else AsyncFlatMapOperator
        return operator(step, services, self._caller, self.errors)

    def _caller(self, in_place: bool) -> AsyncCaller:
        return AsyncCaller(self.body, self.method, self.terms, in_place=in_place)


class AsyncMapOperator(AwaitedOperator):
    one_each = True

    def questions(self, pending: PendingBatch) -> Iterator[Question]:
        size = self.caller.terms.batch
        if size is None:
            for row in range(len(pending.values)):
                yield OneRecord(pending, row)
        else:
            for start in range(0, len(pending.values), size):
                yield SomeRecords(pending, slice(start, start + size), self)

    def made(self, record: Any, answer: Any) -> list[Any]:
        return [answer]


class AsyncFlatMapOperator(AwaitedOperator):
    def questions(self, pending: PendingBatch) -> Iterator[Question]:
        for row in range(len(pending.values)):
            yield ListOfRecord(pending, row, self)

    def made(self, record: Any, answer: Any) -> list[Any]:
        return answer  # type: ignore[no-any-return]


class OneRecord:
    """A call for each record."""

    __slots__ = ("_pending", "_row")

    def __init__(self, pending: PendingBatch, row: int) -> None:
        self._pending = pending
        self._row = row

    @property
    def argument(self) -> Any:
        return self._pending.values[self._row]

    def answer(self, answer: Any) -> None:
        self._pending.answer(self._row, answer)

    def refuse(self, error: Exception) -> None:
        self._pending.refuse(self._row, error)

    def record(self) -> tuple[Any, int]:
        return self.argument, time_of(self._pending.batch, self._row)


class ListOfRecord(OneRecord):
    """A call for each record, which answers with several."""

    __slots__ = ("_operator",)

    def __init__(self, pending: PendingBatch, row: int, operator: AwaitedOperator) -> None:
        super().__init__(pending, row)
        self._operator = operator

    def answer(self, answer: Any) -> None:
        operator = self._operator
        if answer is not None and type(answer) is not list:
            answer = list(as_records(answer, operator.step, operator.caller.function, "async_flat_map"))
        super().answer([] if answer is None else answer)


class SomeRecords:
    """A call for several records, which answers with as many."""

    __slots__ = ("_operator", "_pending", "_rows")

    def __init__(self, pending: PendingBatch, rows: slice, operator: AwaitedOperator) -> None:
        self._pending = pending
        self._rows = rows
        self._operator = operator

    @property
    def argument(self) -> list[Any]:
        return self._pending.values[self._rows]

    def answer(self, answer: Any) -> None:
        operator, asked = self._operator, self._numbers()
        answers = answer if type(answer) is list else list(self._records(answer))
        if len(answers) != len(asked):
            raise ReturnedValueError(
                f"step {operator.step!r}: {len(answers)} answers to {len(asked)} records",
                detail=f"function: {function_location(operator.caller.function)}",
                hint="with batch= the function returns a list with an answer for each record of its list, in the same order",
            )
        for row, one in zip(asked, answers, strict=True):
            self._pending.answer(row, one)

    def refuse(self, error: Exception) -> None:
        for row in self._numbers():
            self._pending.refuse(row, error)

    def record(self) -> tuple[Any, int]:
        return self.argument, time_of(self._pending.batch, self._rows.start)

    def _numbers(self) -> range:
        return range(len(self._pending.values))[self._rows]

    def _records(self, answer: Any) -> Iterable[Any]:
        operator = self._operator
        hint = "with batch= the function returns a list with an answer for each record of its list, in the same order"
        return as_records(answer, operator.step, operator.caller.function, "async_map", hint=hint)
