"""The aggregates that can be computed on vectors, and how."""

from __future__ import annotations

from collections.abc import Callable

from penstock.windows.aggregates import Aggregate, Avg, Count, First, Last, Max, Min, Stddev, Sum
from penstock.windows.columnar.chosen import Chosen
from penstock.windows.columnar.measures import Averaging, Counting, Deviating, Extreme, Measure, Summing

MEASURES: dict[type[Aggregate], Callable[[], Measure]] = {
    Count: Counting,
    Sum: Summing,
    Avg: Averaging,
    Min: lambda: Extreme(least=True),
    Max: lambda: Extreme(least=False),
    Stddev: Deviating,
    First: lambda: Chosen(last=False),
    Last: lambda: Chosen(last=True),
}


def measure_of(aggregate: Aggregate) -> Measure:
    return MEASURES[type(aggregate)]()
