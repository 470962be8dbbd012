"""Declared aggregates: what to compute, as values that a plan can inspect.

Laws:
- An accumulator is plain data (numbers, strings, bytes, lists, sets): it can be encoded, and made by somebody else, from columns.
- `merge(a, b)` is the accumulator of all that went into a, then b. `add` is `merge` with the accumulator of one value.
- None is no value: it is left out, as in SQL. NaN is neither the least nor the greatest, unless there is nothing else.
- An aggregate of no values is None (`count`: 0; `collect`, `top_n`: an empty list).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from penstock.errors import ConfigError
from penstock.functions import function_location
from penstock.ids import Milliseconds
from penstock.runtime.fields import record_getter
from penstock.windows.sketches import Distinct, add_distinct, count_distinct, merge_distinct

Selector = str | int | Callable[[Any], Any] | None
"""A field by name or tuple position, a function of the record, or None: the record itself."""

Timed = tuple[Milliseconds, Any]
"""A value with the timestamp of its record."""


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """One column of a result: `kind` of `field`, under `name`."""

    field: Selector = None
    name: str = ""
    kind: ClassVar[str] = ""
    timed: ClassVar[bool] = False
    """What is added is a value with its time."""

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.kind + _suffix(self.field))

    def create(self) -> Any:
        """The accumulator of nothing."""
        return None

    def add(self, accumulator: Any, value: Any) -> Any:
        """The accumulator with one more value, which is not None."""
        raise NotImplementedError

    def merge(self, left: Any, right: Any) -> Any:
        """The accumulator of both."""
        raise NotImplementedError

    def result(self, accumulator: Any) -> Any:
        return accumulator

    def named(self, name: str) -> Aggregate:
        return replace(self, name=name)

    def getter(self, record: Any, step: str) -> Callable[[Any], Any]:
        """How to get the value from records such as this one."""
        return selector_getter(self.field, record, step)

    def describe(self) -> str:
        """For explain."""
        shown = function_location(self.field) if callable(self.field) else "" if self.field is None else str(self.field)
        return f"{self.name} = {self.kind}({shown})"


class Count(Aggregate):
    """How many records; with a field, how many have it."""

    kind = "count"

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, value: Any) -> int:
        return accumulator + 1

    def merge(self, left: int, right: int) -> int:
        return left + right

    def getter(self, record: Any, step: str) -> Callable[[Any], Any]:
        return _one if self.field is None else super().getter(record, step)


class Sum(Aggregate):
    kind = "sum"

    def add(self, accumulator: Any, value: Any) -> Any:
        return value if accumulator is None else accumulator + value

    def merge(self, left: Any, right: Any) -> Any:
        return left if right is None else self.add(left, right)


class Min(Aggregate):
    kind = "min"

    def add(self, accumulator: Any, value: Any) -> Any:
        return value if accumulator is None or value < accumulator or accumulator != accumulator else accumulator

    def merge(self, left: Any, right: Any) -> Any:
        return left if right is None else self.add(left, right)


class Max(Aggregate):
    kind = "max"

    def add(self, accumulator: Any, value: Any) -> Any:
        return value if accumulator is None or value > accumulator or accumulator != accumulator else accumulator

    def merge(self, left: Any, right: Any) -> Any:
        return left if right is None else self.add(left, right)


class First(Aggregate):
    """The value of the record with the least timestamp; of equal ones, the one that came first. Accumulator: [time, value]."""

    kind = "first"
    timed = True

    def add(self, accumulator: list[Any] | None, value: Timed) -> list[Any]:
        return [*value] if accumulator is None or value[0] < accumulator[0] else accumulator

    def merge(self, left: list[Any] | None, right: list[Any] | None) -> list[Any] | None:
        return left if right is None else self.add(left, (right[0], right[1]))

    def result(self, accumulator: list[Any] | None) -> Any:
        return None if accumulator is None else accumulator[1]


class Last(First):
    """As `First`, with the greatest timestamp; of equal ones, the one that came last."""

    kind = "last"

    def add(self, accumulator: list[Any] | None, value: Timed) -> list[Any]:
        return [*value] if accumulator is None or value[0] >= accumulator[0] else accumulator


class Avg(Aggregate):
    """Accumulator: [how many, their sum]."""

    kind = "avg"

    def create(self) -> list[Any]:
        return [0, 0]

    def add(self, accumulator: list[Any], value: Any) -> list[Any]:
        accumulator[0] += 1
        accumulator[1] += value
        return accumulator

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [left[0] + right[0], left[1] + right[1]]

    def result(self, accumulator: list[Any]) -> Any:
        count, total = accumulator
        return total / count if count else None


class Stddev(Aggregate):
    """The sample standard deviation. Accumulator: [how many, their mean, the sum of squared deviations from it]."""

    kind = "stddev"

    def create(self) -> list[Any]:
        return [0, 0.0, 0.0]

    def add(self, accumulator: list[Any], value: Any) -> list[Any]:
        count, mean, squares = accumulator
        count += 1
        off = value - mean
        mean += off / count
        return [count, mean, squares + off * (value - mean)]

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        if not left[0] or not right[0]:
            return left if left[0] else right
        count = left[0] + right[0]
        off = right[1] - left[1]
        return [count, left[1] + off * right[0] / count, left[2] + right[2] + off * off * left[0] * right[0] / count]

    def result(self, accumulator: list[Any]) -> float | None:
        return math.sqrt(accumulator[2] / (accumulator[0] - 1)) if accumulator[0] > 1 else None


class ApproxDistinct(Aggregate):
    """How many different values, with an error of about 1.6 % (none while they are few). Accumulator: see `sketches`."""

    kind = "approx_distinct"

    def create(self) -> Distinct:
        return set()

    def add(self, accumulator: Distinct, value: Any) -> Distinct:
        return add_distinct(accumulator, value)

    def merge(self, left: Distinct, right: Distinct) -> Distinct:
        return merge_distinct(left, right)

    def result(self, accumulator: Distinct) -> int:
        return count_distinct(accumulator)


@dataclass(frozen=True, kw_only=True)
class TopN(Aggregate):
    """The `n` values that are the largest by `by` (or by themselves), the largest first. Accumulator: [[by, value], ...]."""

    n: int
    by: Selector = None
    kind: ClassVar[str] = "top"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n < 1:
            raise ConfigError(f"top_n({self.n})", hint="n is 1 or more")

    def create(self) -> list[Any]:
        return []

    def add(self, accumulator: list[Any], value: Any) -> list[Any]:
        if len(accumulator) == self.n and value[0] <= accumulator[-1][0]:
            return accumulator
        return self.merge(accumulator, [value])

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return sorted([*left, *right], key=_first, reverse=True)[: self.n]

    def result(self, accumulator: list[Any]) -> list[Any]:
        return [value for _, value in accumulator]

    def getter(self, record: Any, step: str) -> Callable[[Any], Any]:
        """The value with what it is ordered by; None if that is None."""
        get = selector_getter(self.field, record, step)
        if self.by is None:
            return lambda record: None if (value := get(record)) is None else [value, value]
        by = selector_getter(self.by, record, step)
        return lambda record: None if (order := by(record)) is None else [order, get(record)]

    def describe(self) -> str:
        by = "" if self.by is None else f" by {function_location(self.by) if callable(self.by) else self.by}"
        return f"{super().describe()}, {self.n} largest{by}"


class Collect(Aggregate):
    """All values, in order of arrival."""

    kind = "collect"

    def create(self) -> list[Any]:
        return []

    def add(self, accumulator: list[Any], value: Any) -> list[Any]:
        accumulator.append(value)
        return accumulator

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return [*left, *right]

    def result(self, accumulator: list[Any]) -> list[Any]:
        return list(accumulator)


def selector_getter(selector: Selector, record: Any, step: str) -> Callable[[Any], Any]:
    """The function that a selector stands for, on records such as this one."""
    if selector is None:
        return _itself
    return selector if callable(selector) else record_getter([record], selector, step)


def _suffix(field: Selector) -> str:
    if field is None or callable(field):
        return ""
    return f"_f{field}" if isinstance(field, int) else f"_{field}"


def _one(record: Any) -> int:
    return 1


def _itself(record: Any) -> Any:
    return record


def _first(pair: list[Any]) -> Any:
    return pair[0]
