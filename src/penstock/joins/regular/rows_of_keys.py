"""The first or the last record of each key, and the first few by a field: keyed functions whose results may be changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from penstock.changes import APPENDS, Changes, RowKind
from penstock.contexts import RuntimeContext
from penstock.functions import Call, KeyedProcessFunction, call_of
from penstock.joins.keyed_steps import Changed
from penstock.joins.results import Result
from penstock.runtime.fields import record_getter
from penstock.state.descriptors import Ttl, ValueState

Keep = Literal["first", "last"]

_INSERT, _BEFORE, _AFTER, _DELETE = (kind.code for kind in RowKind)


class Deduplicate(KeyedProcessFunction[Any, Any, Result]):
    """`within`: how long a key is known, from its first record (`first`: of processing time only), or from its last one."""

    def __init__(self, keep: Keep, within: Ttl | None, record_type: Any) -> None:
        self.keep = keep
        self.within = within
        self.kept: ValueState[Any] = ValueState(record_type if keep == "last" else bool, ttl=within)

    def function_calls(self) -> tuple[Call, ...]:
        return ()

    def emits(self, inputs: tuple[Changes, ...]) -> Changes:
        return APPENDS if self.keep == "first" else APPENDS | {RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER}

    def of_what(self) -> dict[str, str]:
        """Of a first record only that it came is kept."""
        return {"kept": f"the {self.keep} record of each key"}

    def describe(self) -> dict[str, str]:
        known = "for ever" if self.within is None else f"for {self.within.ms} ms of {self.within.time} time"
        return {"keeps": f"the {self.keep} record of each key", "known": known}

    def process(self, value: Changed, ctx: Any) -> Iterator[Result]:
        before = self.kept.value
        if self.keep == "first":
            if before is None:
                self.kept.update(True)
                yield Result(value.value)
            return
        self.kept.update(value.value)
        if before is None:
            yield Result(value.value, None, _INSERT)
        elif before != value.value:
            yield Result(before, None, _BEFORE)
            yield Result(value.value, None, _AFTER)


class TopN(KeyedProcessFunction[Any, Any, Result]):
    """Of records with equal values those that came first are ahead."""

    def __init__(self, n: int, by: Any, largest: bool, within: Ttl | None, record_type: Any) -> None:
        self.n = n
        self.by = by
        self.largest = largest
        self.within = within
        self.function = by if callable(by) else None
        self.top: ValueState[Any] = ValueState(None if record_type is None else list[record_type], ttl=within)

    def function_calls(self) -> tuple[Call, ...]:
        return (call_of(self.by, "by", "value"),) if callable(self.by) else ()

    def emits(self, inputs: tuple[Changes, ...]) -> Changes:
        return APPENDS | {RowKind.DELETE}

    def of_what(self) -> dict[str, str]:
        """What is not among them is gone. Of functions nothing can be told: two of them count as the same."""
        by = "a function" if callable(self.by) else repr(self.by)
        return {"top": f"the {self.n} records of each key with the {self._most()} {by}"}

    def describe(self) -> dict[str, str]:
        by = "a function" if callable(self.by) else self.by
        return {"keeps": f"the {self.n} records of each key with the {self._most()} {by}"}

    def _most(self) -> str:
        return "largest" if self.largest else "smallest"

    def open(self, context: RuntimeContext) -> None:
        self._step = context.step

    def process(self, value: Changed, ctx: Any) -> Iterator[Result]:
        record = value.value
        get = self.by if callable(self.by) else record_getter([record], self.by, self._step)
        top = list(self.top.value or ())
        mine = get(record)
        place = sum(1 for other in top if (get(other) >= mine if self.largest else get(other) <= mine))
        if place >= self.n:
            return
        top.insert(place, record)
        if len(top) > self.n:
            yield Result(top.pop(), None, _DELETE)
        self.top.update(top)
        yield Result(record, None, _INSERT)
