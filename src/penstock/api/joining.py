"""Joins of two keyed streams, as they are written: what is joined, which rows count, and at the end what is made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.api.stream import DataStream
from penstock.errors import PlanError
from penstock.functions import OutputTag
from penstock.joins.columns import JoinedColumns, Named, named_columns
from penstock.joins.functions import JoinFunction, ProcessJoinFunction
from penstock.joins.interval.record import IntervalJoinFunction, JoinBody
from penstock.joins.interval.step import ColumnarIntervalJoin, RecordIntervalJoin
from penstock.joins.records import SelectColumns
from penstock.joins.spec import IntervalSpec, JoinKind, inclusive, outer_as
from penstock.plan.definition import Definition, ErrorPolicy
from penstock.plan.schemas import schema_of
from penstock.timing.durations import Duration, signed_ms

if TYPE_CHECKING:
    from penstock.api.keyed import KeyedStream

K = TypeVar("K")
L = TypeVar("L")
R = TypeVar("R")
T = TypeVar("T")
U = TypeVar("U")
O = TypeVar("O")  # noqa: E741 - the output

Columns = Iterable[str] | Mapping[str, str]


class TwoStreams:
    """Two keyed streams of one environment that one step takes."""

    def __init__(self, left: KeyedStream[Any, Any], right: KeyedStream[Any, Any], what: str) -> None:
        from penstock.api.keyed import KeyedStream

        if not isinstance(right, KeyedStream):
            raise PlanError(
                f"{what}({type(right).__name__}): the other stream is not keyed",
                hint=f'key both sides alike: a.key_by("id").{what}(b.key_by("id"))',
            )
        if left._env is not right._env:
            raise PlanError("streams of two environments cannot be joined", hint="read both sources in one environment")
        check_alike(left, right, what)
        self.left = left
        self.right = right

    @property
    def keys(self) -> dict[str, Any]:
        """What a definition knows of the keys."""
        sides = self.left._exchange, self.right._exchange
        return {"key_type": sides[0].key_type, "key_fields": (sides[0].key_fields, sides[1].key_fields)}

    def columns(self, left: Columns | None, right: Columns | None) -> JoinedColumns:
        named: tuple[Named | None, Named | None] = (named_columns(left), named_columns(right))
        if named != (None, None):
            named = (named[0] or (), named[1] or ())
        env = self.left._env
        known = [schema_of(env._graph, side._input(), env._schemas) for side in (self.left, self.right)]
        fields = [side._exchange.key_fields or () for side in (self.left, self.right)]
        keys = [tuple(field if isinstance(field, str) else "" for field in mine) for mine in fields]
        return JoinedColumns(named=named, keys=(keys[0], keys[1]), known=(known[0], known[1]))

    def then(self, definition: Definition, name: str | None, label: str, previous_names: Sequence[str] = ()) -> DataStream[Any]:
        env = self.left._env
        inputs = self.left._input(), self.right._input()
        return DataStream(env, env._add(definition, *inputs, name=name, label=label, previous_names=previous_names))


def check_alike(left: KeyedStream[Any, Any], right: KeyedStream[Any, Any], what: str) -> None:
    """Keys of different numbers of fields are never equal."""
    sides = left._exchange.key_fields, right._exchange.key_fields
    if sides[0] is None or sides[1] is None or len(sides[0]) == len(sides[1]):
        return
    shown = [", ".join(map(repr, fields)) for fields in sides if fields is not None]
    raise PlanError(
        f"{what}: the keys of both sides have different numbers of fields, so that none would be equal",
        detail=f"left: {shown[0]}\nright: {shown[1]}",
        hint="key both sides by as many fields, which mean the same, in the same order",
    )


def check_tags(left: OutputTag[Any] | None, right: OutputTag[Any] | None = None) -> tuple[str | None, str | None]:
    """The names of the side outputs of both sides."""
    for tag in (left, right):
        if tag is not None and not isinstance(tag, OutputTag):
            raise PlanError(f"late({tag!r})", hint=f"give a tag: OutputTag({str(tag)!r}), and read it with .side_output(tag)")
    return None if left is None else left.name, None if right is None else right.name


class IntervalJoin(Generic[L, R]):
    """What `interval_join(...)` gives: pairs of records of one key whose times are within bounds.

    `between` first; then `left()`, `right()` or `full()` for an outer join; at last `select`, `apply` or `process`.
    """

    def __init__(self, streams: TwoStreams, spec: IntervalSpec | None = None) -> None:
        self._streams = streams
        self._spec = spec

    def between(
        self, lower: Duration, upper: Duration, *, lower_exclusive: bool = False, upper_exclusive: bool = False
    ) -> IntervalJoin[L, R]:
        """How much later than the left record the right one may be: both bounds may be negative, and count unless excluded."""
        lower_ms, upper_ms = inclusive(
            signed_ms(lower, what="lower"),
            signed_ms(upper, what="upper"),
            lower_exclusive=lower_exclusive,
            upper_exclusive=upper_exclusive,
        )
        return IntervalJoin(self._streams, IntervalSpec(lower_ms=lower_ms, upper_ms=upper_ms))

    def left(self) -> IntervalJoin[L, R | None]:
        """Left records without a partner are results too, when none can come any more."""
        return self._how("left")

    def right(self) -> IntervalJoin[L | None, R]:
        """Right records without a partner are results too, when none can come any more."""
        return self._how("right")

    def full(self) -> IntervalJoin[L | None, R | None]:
        """Records of both sides without a partner are results too, when none can come any more."""
        return self._how("full")

    def late(self, *, left: OutputTag[Any] | None = None, right: OutputTag[Any] | None = None) -> IntervalJoin[L, R]:
        """Side outputs of the late records of either side; without one they are dropped. All are counted."""
        return IntervalJoin(self._streams, replace(self._bounded(), late=check_tags(left, right)))

    def select(
        self,
        left: Columns | None = None,
        right: Columns | None = None,
        *,
        columnar: bool = True,
        name: str | None = None,
        previous_names: Sequence[str] = (),
    ) -> DataStream[dict[str, Any]]:
        """Columns of both sides: lists of names, or dicts from names to new names; without any, all columns of both.

        Records stay columns, and are matched in bulk; `columnar=False` joins record by record, which gives the same.
        """
        streams, spec = self._streams, self._bounded()
        columns = streams.columns(left, right)
        if columnar:
            definition: Definition = ColumnarIntervalJoin(spec=spec, columns=columns, **streams.keys)
            return streams.then(definition, name, "interval_join", previous_names)
        return self._by_record(SelectColumns(columns), (None, None), "columnar=False", name, "fail", previous_names)

    def apply(
        self,
        function: Callable[[L, R], O] | JoinFunction[L, R, O],
        *,
        types: tuple[Any, Any] = (None, None),
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[O]:
        """One result of each pair, by a function of the left and the right record. `types`: theirs, for the state."""
        return self._by_record(function, types, "a function sees the records", name, errors, previous_names)

    def process(
        self,
        function: ProcessJoinFunction[L, R, O],
        *,
        types: tuple[Any, Any] = (None, None),
        name: str | None = None,
        errors: ErrorPolicy = "fail",
        previous_names: Sequence[str] = (),
    ) -> DataStream[O]:
        """Any number of results of each pair, by a function that also sees their times. `types`: theirs, for the state."""
        if not callable(getattr(function, "process", None)):
            raise PlanError(
                f"{function!r} is not a ProcessJoinFunction",
                hint="give an instance of a class with process(self, left, right, ctx); or a plain function to apply(...)",
            )
        return self._by_record(function, types, "a function sees the records", name, errors, previous_names)

    def _by_record(
        self,
        function: Any,
        types: tuple[Any, Any],
        why: str,
        name: str | None,
        errors: ErrorPolicy,
        previous_names: Sequence[str],
    ) -> DataStream[Any]:
        exchange = self._streams.left._exchange
        definition = RecordIntervalJoin(
            body=IntervalJoinFunction(self._bounded(), JoinBody(function), types),
            key_type=exchange.key_type,
            key_fields=exchange.key_fields,
            errors=errors,
            why=why,
        )
        return self._streams.then(definition, name, "interval_join", previous_names)

    def _how(self, how: JoinKind) -> IntervalJoin[Any, Any]:
        spec = self._bounded()
        return IntervalJoin(self._streams, replace(spec, how=outer_as(spec.how, how)))

    def _bounded(self) -> IntervalSpec:
        if self._spec is None:
            raise PlanError(
                "interval_join without bounds",
                hint="first say how far apart the records may be: .between(timedelta(seconds=-5), timedelta(seconds=5))",
            )
        return self._spec
