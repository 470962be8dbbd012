"""Events by number: the n-th event is `function(n)`.

All events below `next` have been admitted, so the position is one number whatever the partitions: partition k holds the
numbers n with n % partitions == k, in order. With a rate, event n is due (n + 1) / rate seconds after the start, by the clock
of the driver that planned first; what fell due while the job was down comes at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import msgspec
import numpy as np

from penstock.connectors.protocol import Enumerator, Limits, Planned, Position, Reader, SourceContext, Split
from penstock.errors import ConfigError, UserCodeError
from penstock.functions import Call, call_of, function_location
from penstock.records import Batch, Records, RowType, as_batch, field_names

_PIECES = 8
"""Of a partition in an epoch that reads in order of event time."""


class GeneratorPosition(msgspec.Struct, frozen=True):
    """The first number not yet admitted, over how many partitions, and when it all began."""

    next: int
    partitions: int
    start_ms: int


@dataclass(frozen=True, slots=True)
class GeneratorSource:
    """`function(n)` for n = 0, 1, 2, …: forever without `count`, at `rate` per second in total.

    `function` must depend on n only, so that an epoch can be read again. `vectorised=True` hands it an int64 array of
    numbers; it returns a list, a RecordBatch or a Table with a row for each (`schema` says what a row is as a record).
    `partitions` defaults to the parallelism the job is first run with.
    """

    function: Callable[[Any], Any]
    _: KW_ONLY
    count: int | None = None
    partitions: int | None = None
    rate: float | None = None
    batch_size: int = 4096
    vectorised: bool = False
    schema: type | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ConfigError(f"{self.function!r} is not a function", hint="pass a function of the event's number")
        for name, least in (("count", 0), ("partitions", 1), ("batch_size", 1)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < least):
                raise ConfigError(f"{name}={value!r} is not valid", hint=f"give a whole number, {least} or more")
        if self.rate is not None and not (self.rate > 0 and math.isfinite(self.rate)):
            hint = "give events per second, or leave it out to go as fast as epochs take them"
            raise ConfigError(f"rate={self.rate!r} is not valid", hint=hint)
        if self.schema is not None:
            field_names(self.schema)

    @property
    def bounded(self) -> bool:
        return self.count is not None

    @property
    def reads_in_order(self) -> bool:
        """An epoch may stop anywhere in its splits."""
        return True

    @property
    def row(self) -> RowType:
        return RowType(self.schema)

    def enumerator(self, context: SourceContext) -> GeneratorEnumerator:
        return GeneratorEnumerator(self, context.parallelism, in_order=context.ordering == "time")

    def reader(self) -> GeneratorReader:
        return GeneratorReader(self)

    def function_calls(self) -> tuple[Call, ...]:
        return (call_of(self.function, "function", "numbers" if self.vectorised else "n"),)

    def describe(self) -> str:
        many = "endless" if self.count is None else f"{self.count}"
        speed = "" if self.rate is None else f", {self.rate:g}/s"
        return f"generator {getattr(self.function, '__qualname__', 'function')}: {many} events{speed}"


class GeneratorEnumerator(Enumerator):
    def __init__(self, source: GeneratorSource, parallelism: int, *, in_order: bool) -> None:
        self._source = source
        self._in_order = in_order
        self._parallelism = parallelism
        self._started_ms: int | None = None

    def plan(self, position: Position, limits: Limits, now_ms: int) -> Planned:
        source = self._source
        at = self._resume(position, now_ms)
        due = self._due(at, now_ms)
        stop = at.next + max(1, limits.records)
        if self._in_order:  # every partition gets some; none, if those that are behind have enough
            stop = at.next if len(limits.full) == at.partitions else max(stop, at.next + at.partitions)
        if due is not None:
            stop = max(at.next, min(stop, due))
        splits = []
        for k in range(at.partitions):
            first = _first(at, k)
            if first < stop:
                splits += self._splits(k, first, stop, at.partitions)
        wake = None
        if source.rate is not None and stop != source.count:
            wake = at.start_ms + math.ceil((stop + 1) * 1000 / source.rate)
        ahead = due if source.rate is not None else source.count
        return Planned(
            splits=splits,
            position=msgspec.to_builtins(msgspec.structs.replace(at, next=stop)),
            partitions=[str(k) for k in range(at.partitions) if source.count is None or _first(at, k) < source.count],
            exhausted=source.count is not None and stop >= source.count,
            wake_ms=wake,
            backlog=None if ahead is None else max(0, ahead - stop),
            more=[str(k) for k in range(at.partitions) if ahead is None or stop + (k - stop) % at.partitions < ahead],
        )

    def _splits(self, partition: int, first: int, stop: int, step: int) -> list[Split]:
        """One split, or several if it is read in order of event time: the function is not called for what the epoch leaves."""
        pieces = _PIECES if self._in_order else 1
        stride = max(1, -(-(stop - first) // (step * pieces))) * step
        return [
            Split(
                partition=str(partition),
                what=[at, min(stop, at + stride), step],
                records=-(-(min(stop, at + stride) - at) // step),
            )
            for at in range(first, stop, stride)
        ]

    def shed(self, position: Position, now_ms: int) -> tuple[Position, int]:
        at = self._resume(position, now_ms)
        newest = at.next if self._source.rate is None else max(at.next, self._due(at, now_ms) or 0)
        return msgspec.to_builtins(msgspec.structs.replace(at, next=newest)), newest - at.next

    def reached(self, position: Position, goal: Position) -> bool:
        return _next(position) >= _next(goal)

    def _resume(self, position: Position, now_ms: int) -> GeneratorPosition:
        partitions = self._source.partitions
        if position is not None:
            at = msgspec.convert(position, GeneratorPosition)
            return at if partitions is None else msgspec.structs.replace(at, partitions=partitions)
        # Asked again before the first event was due, the start must not move along with the clock.
        if self._started_ms is None:
            self._started_ms = now_ms
        return GeneratorPosition(next=0, partitions=partitions or self._parallelism, start_ms=self._started_ms)

    def _due(self, at: GeneratorPosition, now_ms: int) -> int | None:
        """How many events there are by now in all; None: as many as wanted."""
        source = self._source
        if source.rate is None:
            return source.count
        due = max(0, math.floor((now_ms - at.start_ms) * source.rate / 1000))
        return due if source.count is None else min(due, source.count)


def _next(position: Position) -> int:
    return 0 if position is None else msgspec.convert(position, GeneratorPosition).next


def _first(at: GeneratorPosition, partition: int) -> int:
    """The first number of a partition that has not been admitted."""
    return at.next + (partition - at.next) % at.partitions


class GeneratorReader(Reader):
    def __init__(self, source: GeneratorSource) -> None:
        self._source = source

    def read(self, split: Split) -> Iterator[Batch]:
        first, stop, step = split.what
        stride = self._source.batch_size * step
        for start in range(first, stop, stride):
            end = min(stop, start + stride)
            if self._source.vectorised:
                yield from self._vector(np.arange(start, end, step, dtype=np.int64))
            else:
                yield self._each(range(start, end, step))

    def _each(self, numbers: range) -> Batch:
        function = self._source.function
        values: list[Any] = []
        append = values.append
        n = numbers.start
        try:
            for n in numbers:
                append(function(n))
        except Exception as error:
            raise self._failed(f"event {n}", error) from error
        return Records(values)

    def _vector(self, numbers: np.ndarray[Any, np.dtype[np.int64]]) -> list[Batch]:
        asked = len(numbers)
        span = f"events {numbers[0]} to {numbers[-1]}"
        try:
            batches = as_batch(self._source.function(numbers), self._source.row)
        except Exception as error:
            raise self._failed(span, error) from error
        given = sum(len(batch) for batch in batches)
        if given != asked:
            raise UserCodeError(
                f"the generator's function returned {given} events for {asked} numbers",
                detail=f"{function_location(self._source.function)}, {span}",
                hint="with vectorised=True it must return one row for each number",
            )
        return batches

    def _failed(self, what: str, error: Exception) -> UserCodeError:
        return UserCodeError(
            f"the generator's function raised {type(error).__name__}: {error}",
            detail=f"{function_location(self._source.function)}, {what}",
        )
