"""Declared aggregates for windows: `from penstock import aggregates as agg`, then `agg.sum("price")`.

Each takes a field by name, a tuple position, or a function of the record. Several go into one `aggregate(...)`.
"""

from __future__ import annotations

from penstock.windows.aggregates import (
    Aggregate,
    ApproxDistinct,
    Avg,
    Collect,
    Count,
    First,
    Last,
    Max,
    Min,
    Selector,
    Stddev,
    Sum,
    TopN,
)

__all__ = ["Aggregate", "approx_distinct", "avg", "collect", "count", "first", "last", "max", "min", "stddev", "sum", "top_n"]


def count(field: Selector = None, *, name: str = "") -> Aggregate:
    """How many records; with a field, how many have a value there."""
    return Count(field=field, name=name)


def sum(field: Selector = None, *, name: str = "") -> Aggregate:
    """The sum of a field."""
    return Sum(field=field, name=name)


def min(field: Selector = None, *, name: str = "") -> Aggregate:
    """The least value of a field."""
    return Min(field=field, name=name)


def max(field: Selector = None, *, name: str = "") -> Aggregate:
    """The greatest value of a field."""
    return Max(field=field, name=name)


def avg(field: Selector = None, *, name: str = "") -> Aggregate:
    """The mean of a field."""
    return Avg(field=field, name=name)


def first(field: Selector = None, *, name: str = "") -> Aggregate:
    """The value of a field in the first record by event time; of records of the same time, in the one that came first."""
    return First(field=field, name=name)


def last(field: Selector = None, *, name: str = "") -> Aggregate:
    """The value of a field in the last record by event time; of records of the same time, in the one that came last."""
    return Last(field=field, name=name)


def stddev(field: Selector = None, *, name: str = "") -> Aggregate:
    """The sample standard deviation of a field; None for fewer than two values."""
    return Stddev(field=field, name=name)


def approx_distinct(field: Selector = None, *, name: str = "") -> Aggregate:
    """How many different values a field has: exact up to 256, then within about 1.6 %."""
    return ApproxDistinct(field=field, name=name)


def top_n(n: int, field: Selector = None, *, by: Selector = None, name: str = "") -> Aggregate:
    """The `n` largest values of a field, or the values with the largest `by`; the largest first, the first of equals first."""
    return TopN(n=n, field=field, by=by, name=name)


def collect(field: Selector = None, *, name: str = "") -> Aggregate:
    """All values of a field, as a list."""
    return Collect(field=field, name=name)
