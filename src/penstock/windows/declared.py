"""Several declared aggregates at once, over the records of a window: a record with a column for each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.errors import PlanError
from penstock.functions import Call, call_of
from penstock.ids import Milliseconds
from penstock.plan.schema import Schema
from penstock.windows.aggregates import Aggregate
from penstock.windows.functions import WindowContext
from penstock.windows.incremental import Incremental
from penstock.windows.window import TimeWindow

WINDOW_COLUMNS = ("window_start", "window_end")


@dataclass(frozen=True)
class Declared(Incremental):
    """Accumulator: a list with one of each aggregate."""

    aggregates: tuple[Aggregate, ...]
    key_names: tuple[str, ...]
    tolerant: bool = False
    """Records that cannot be added are left out: nothing of them may remain in an accumulator."""

    def __post_init__(self) -> None:
        names = [*self.key_names, *WINDOW_COLUMNS, *(aggregate.name for aggregate in self.aggregates)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise PlanError(
                f"two columns of the result are called {twice[0]!r}",
                detail=f"columns: {', '.join(names)}",
                hint=f'give one another name: aggregate(another_{twice[0]}=avg("x"))',
            )
        object.__setattr__(self, "_getters", {})

    @property
    def timed(self) -> bool:  # type: ignore[override]
        return any(aggregate.timed for aggregate in self.aggregates)

    @property
    def function(self) -> Any:
        return next((a.field for a in self.aggregates if callable(a.field)), self.aggregates[0])

    def calls(self) -> tuple[Call, ...]:
        given = [selector for a in self.aggregates for selector in (a.field, getattr(a, "by", None))]
        return tuple(call_of(selector, "value", "record") for selector in given if callable(selector))

    def add(self, accumulator: list[Any] | None, value: Any) -> list[Any]:
        if accumulator is None:
            accumulator = [aggregate.create() for aggregate in self.aggregates]
        elif self.tolerant:
            accumulator = copy.deepcopy(accumulator)
        for at, (get, add) in enumerate(self._prepared(value)):
            one = get(value)
            if one is not None:
                accumulator[at] = add(accumulator[at], one)
        return accumulator

    def add_at(self, accumulator: list[Any] | None, value: Any, time: Milliseconds) -> list[Any]:
        """As `add`, if some of the aggregates want to know when a value was."""
        if accumulator is None:
            accumulator = [aggregate.create() for aggregate in self.aggregates]
        elif self.tolerant:
            accumulator = copy.deepcopy(accumulator)
        for at, (get, add) in enumerate(self._prepared(value)):
            one = get(value)
            if one is not None:
                accumulator[at] = add(accumulator[at], (time, one) if self.aggregates[at].timed else one)
        return accumulator

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [one.merge(a, b) for one, a, b in zip(self.aggregates, left, right, strict=True)]

    def result(self, accumulator: list[Any]) -> dict[str, Any]:
        return {one.name: one.result(held) for one, held in zip(self.aggregates, accumulator, strict=True)}

    def output(self, schema: Schema | None) -> Schema:
        """The columns of the records that windows emit."""
        keys = {name: None if schema is None else schema.type_of(name) for name in self.key_names}
        return Schema.of({**keys, **dict.fromkeys([*WINDOW_COLUMNS, *(one.name for one in self.aggregates)])}.items())

    def emitted(self, accumulator: list[Any], ctx: WindowContext[Any]) -> dict[str, Any]:
        return self.row(ctx.key if self.key_names else None, ctx.window, accumulator)

    def row(self, key: Any, window: TimeWindow, accumulator: list[Any]) -> dict[str, Any]:
        """The record that a window emits."""
        parts = (key,) if len(self.key_names) == 1 else key or ()
        row = dict(zip(self.key_names, parts, strict=True))
        row["window_start"], row["window_end"] = (None, None) if window.is_global else window
        row.update(self.result(accumulator))
        return row

    def describe(self) -> str:
        return "; ".join(aggregate.describe() for aggregate in self.aggregates)

    def _prepared(self, record: Any) -> list[tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]]:
        getters: dict[type, Any] = self._getters  # type: ignore[attr-defined]
        found = getters.get(type(record))
        if found is None:
            found = getters[type(record)] = [(one.getter(record, "aggregate"), one.add) for one in self.aggregates]
        return found
