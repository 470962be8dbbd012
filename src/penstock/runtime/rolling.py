"""Rolling aggregations of keyed streams: library functions on the same footing as a user's.

Law: what was emitted is not changed afterwards, also if the user's function changes the value so far in place and returns it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from penstock.functions import AggregateFunction, Call, KeyedProcessFunction, aggregate_calls, call_of
from penstock.plan.schema import Schema
from penstock.runtime.fields import record_getter, replace_field
from penstock.state.descriptors import ValueState, value_state

_NUMBERS = (int, float, Decimal)


class Rolling(KeyedProcessFunction[Any, Any, Any]):
    """One value of state for each key."""

    def __init__(self, state_type: Any, default: Any = None) -> None:
        self.result: ValueState[Any] = value_state(state_type, default)

    def function_calls(self) -> tuple[Call, ...]:
        """How it calls the user's function, if there is one."""
        return ()


class RollingReduce(Rolling):
    def __init__(self, function: Callable[[Any, Any], Any], state_type: Any) -> None:
        super().__init__(state_type)
        self.function = function

    def function_calls(self) -> tuple[Call, ...]:
        return (call_of(self.function, "reduce", "left", "right"),)

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        before = self.result.value
        result = value if before is None else self.function(before, value)
        self.result.update(result)
        return (copy.deepcopy(result) if before is None or result is before else result,)  # type: ignore[return-value]


class RollingFold(Rolling):
    def __init__(self, initial: Any, function: Callable[[Any, Any], Any], state_type: Any) -> None:
        super().__init__(state_type, initial)
        self.function = function

    def function_calls(self) -> tuple[Call, ...]:
        return (call_of(self.function, "fold", "result", "value"),)

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        before = self.result.value
        result = self.function(before, value)
        self.result.update(result)
        return (copy.deepcopy(result) if result is before else result,)  # type: ignore[return-value]


class RollingAggregate(Rolling):
    def __init__(self, aggregate: AggregateFunction[Any, Any, Any], state_type: Any) -> None:
        super().__init__(state_type)
        self.aggregate = aggregate

    def function_calls(self) -> tuple[Call, ...]:
        return aggregate_calls(self.aggregate)

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        before = self.result.value
        accumulator = self.aggregate.add(value, self.aggregate.create_accumulator() if before is None else before)
        self.result.update(accumulator)
        result = self.aggregate.result(accumulator)
        return (copy.deepcopy(result) if result is accumulator else result,)  # type: ignore[return-value]


class ByField(Rolling):
    """An aggregation of one field, by name or position, of whatever a record is."""

    def __init__(self, field: str | int, state_type: Any) -> None:
        super().__init__(state_type)
        self.field = field

    def output(self, schema: Schema | None) -> Schema | None:
        """Records as they came, but for the field's type."""
        if schema is None:
            return None
        return Schema.of(((name, None if name == self.field else kind) for name, kind in schema.fields().items()), schema.cls)

    def field_of(self, value: Any) -> Any:
        if isinstance(value, _NUMBERS):
            return value
        return record_getter([value], self.field, "aggregation")(value)

    def with_field(self, record: Any, field: Any) -> Any:
        return field if isinstance(record, _NUMBERS) else replace_field(record, self.field, field)


class RollingSum(ByField):
    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        before = self.result.value
        total = self.field_of(value) if before is None else before + self.field_of(value)
        self.result.update(total)
        return (self.with_field(value, total),)  # type: ignore[return-value]


class RollingExtreme(ByField):
    def __init__(self, field: str | int, *, least: bool, whole: bool, state_type: Any) -> None:
        super().__init__(field, state_type)
        self.least = least
        self.whole = whole

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        before = self.result.value
        if before is None:
            result = value
        else:
            new, old = self.field_of(value), self.field_of(before)
            better = new < old if self.least else new > old
            result = before if not better else value if self.whole else self.with_field(before, new)
        self.result.update(result)
        return (result,)  # type: ignore[return-value]
