"""Entries as columns: nothing is lost on the way there and back, and the keys are those of the running job."""

from __future__ import annotations

import enum
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK
from penstock.jobs.manifest import StateInfo
from penstock.state.encoding.codecs import PICKLE, codec_for, register_codec
from penstock.state.encoding.json_values import from_text, to_text
from penstock.state.encoding.keys import key_codec
from penstock.state.encoding.untyped import encode_untyped
from penstock.state.entries.state_table import StateTable
from penstock.state.entries.store_keys import end_of_value, sortable_time
from penstock.state.key_groups import NEW_JOBS, KeyGroups
from penstock.windows.columnar.chunks import Chunk, KeyIndex, dump_chunk
from penstock.windows.columnar.vectors import objects
from penstock.windows.window import GLOBAL, TimeWindow, encode_window
from tests.properties import shared_between

GROUPS = KeyGroups(128, NEW_JOBS)


class Colour(enum.Enum):
    RED = "r"
    BLUE = "b"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Point(NamedTuple):
    x: int
    y: float = 0.0


@dataclass
class Visit:
    page: str
    seen: datetime | None = None
    tags: list[str] = field(default_factory=list)
    points: dict[str, Point] = field(default_factory=dict)


class Sparse(msgspec.Struct, omit_defaults=True):
    a: int = 0
    b: str | None = "x"


class Tagged(msgspec.Struct, tag="tagged", tag_field="kind"):
    n: int


class Options(TypedDict, total=False):
    depth: int


@dataclass(frozen=True)
class Node:
    value: int
    next: Node | None = None


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


register_codec(Money, encode=lambda m: [m.cents, "ct"], decode=lambda p: Money(p[0]), name="test.columns.Money")

INTS = st.integers(-(2**63), 2**64 - 1)
FLOATS = st.floats()  # a NaN keeps its bits
TEXTS = st.text(max_size=6)
UTC_TIMES = st.datetimes(timezones=st.just(UTC))
NAIVE_TIMES = st.datetimes()
POINTS = st.builds(Point, st.integers(-5, 5), st.floats(width=32))

TYPES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (int, INTS),
    (bool, st.booleans()),
    (float, FLOATS),
    (str, TEXTS),
    (bytes, st.binary(max_size=6)),
    (datetime, UTC_TIMES),
    (datetime, st.one_of(UTC_TIMES, NAIVE_TIMES)),
    (date, st.dates()),
    (time, st.times()),
    (timedelta, st.timedeltas()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Level, st.sampled_from(Level)),
    (Literal["a", "b"], st.sampled_from(["a", "b"])),
    (Literal["a", 1], st.sampled_from(["a", 1])),
    (int | None, st.none() | INTS),
    (int | str, st.integers() .filter(lambda n: -(2**63) <= n < 2**64) | TEXTS),
    (Point, POINTS),
    (Point | None, st.none() | POINTS),
    (list[Point | None], st.lists(st.none() | POINTS, max_size=3)),
    (tuple[int, str], st.tuples(st.integers(0, 9), TEXTS)),
    (tuple[int, ...], st.lists(st.integers(0, 9), max_size=3).map(tuple)),
    (set[str], st.sets(TEXTS, max_size=3)),
    (dict[str, int | None], st.dictionaries(TEXTS, st.none() | st.integers(0, 9), max_size=3)),
    (dict[int, list[str]], st.dictionaries(st.integers(0, 9), st.lists(TEXTS, max_size=2), max_size=3)),
    (dict[Point, int], st.dictionaries(st.builds(Point, st.integers(0, 5), st.just(1.0)), st.integers(0, 9), max_size=2)),
    (Visit, st.builds(Visit, TEXTS, st.none() | UTC_TIMES, st.lists(TEXTS, max_size=2), st.dictionaries(TEXTS, POINTS))),
    (Sparse, st.builds(Sparse, st.integers(0, 2), st.sampled_from(["x", None, "y"]))),
    (Tagged, st.builds(Tagged, st.integers(0, 9))),
    (Options, st.sampled_from([{}, {"depth": 1}])),
    (Node, st.builds(Node, st.integers(0, 9), st.none() | st.builds(Node, st.integers(0, 9)))),
    (Money, st.integers(0, 99).map(Money)),
    (list[Money], st.lists(st.integers(0, 99).map(Money), max_size=2)),
    (dict[str, Any], st.dictionaries(TEXTS, st.one_of(st.none(), INTS, FLOATS, st.binary(max_size=3)), max_size=3)),
]  # fmt: skip

ANYTHING = st.recursive(
    st.one_of(
        st.none(), INTS, FLOATS, TEXTS, st.binary(max_size=4), NAIVE_TIMES, UTC_TIMES, st.dates(), st.decimals(), st.uuids(),
        st.timedeltas(), st.sampled_from(Colour), POINTS,
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(TEXTS, inner, max_size=3),
        st.dictionaries(st.integers(0, 9), inner, max_size=3), st.sets(st.integers(0, 9), max_size=3),
        st.dictionaries(st.just("$bytes"), inner, max_size=1),
    ),
    max_leaves=8,
)  # fmt: skip

KEYS: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (None, st.integers(-(2**63), 2**63 - 1)),
    (None, TEXTS),
    (None, FLOATS),
    (None, st.tuples(TEXTS, st.integers(0, 9))),
    (None, st.one_of(st.none(), st.booleans(), INTS, TEXTS, FLOATS, st.binary(max_size=3), UTC_TIMES, st.tuples(TEXTS, FLOATS))),
    (int, INTS),
    (str, TEXTS),
    (float, FLOATS),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (datetime, NAIVE_TIMES),
    (date, st.dates()),
    (UUID, st.uuids()),
    (Colour, st.sampled_from(Colour)),
    (Point, POINTS),
    (tuple[str, Decimal], st.tuples(TEXTS, st.decimals(allow_nan=False, allow_infinity=False))),
    (tuple[str, int | None], st.tuples(TEXTS, st.none() | st.integers(0, 9))),
    (Node, st.builds(Node, st.integers(0, 9))),
    (frozenset[str], st.frozensets(TEXTS, max_size=4)),
]  # fmt: skip


def checked(info: StateInfo, keys: list[bytes], values: list[bytes], *, mixed: bool = False) -> pa.Table:
    """Read, and written back: the same. Returns the table."""
    order = sorted(range(len(keys)), key=lambda n: keys[n])
    keys, values = [keys[n] for n in order], [values[n] for n in order]
    for columns in (StateTable(info, GROUPS), StateTable.sampled(info, GROUPS, keys[:2], values[:2])):
        table = pa.Table.from_arrays(columns.read(keys, values), schema=columns.schema)
        table.validate(full=True)
        assert [(raw_key, raw) for _, raw_key, raw in columns.write(table)] == list(zip(keys, values, strict=True))
        again = StateTable.like(info, GROUPS, columns.schema)
        assert again.schema.equals(columns.schema, check_metadata=True)
    return table


@pytest.mark.parametrize(("tp", "strategy"), TYPES, ids=[str(tp)[-40:] for tp, _ in TYPES])
@given(data=st.data())
@shared_between(len(TYPES))
def test_values_of_a_type(tp: Any, strategy: st.SearchStrategy[Any], data: st.DataObject) -> None:
    values = data.draw(st.lists(strategy, max_size=6))
    codec = codec_for(tp)
    keys = [key_codec().encode(number) for number in range(len(values))]
    stored = [codec.encode(value) for value in values]
    checked(StateInfo("s", "n", "value", codec.schema), keys, stored)
    stamped = [(10**12 + n).to_bytes(8, "big", signed=True) + value for n, value in enumerate(stored)]
    checked(StateInfo("s", "n", "value", codec.schema, ttl=True), keys, stamped)
    chunk = b"".join(len(value).to_bytes(4, "big") + value for value in stored)
    checked(StateInfo("s", "n", "list", codec.schema), [keys[0] + bytes(8)] if keys else [], [chunk] if keys else [])
    late = b"".join(len(value).to_bytes(4, "big") + value for value in stamped)
    checked(StateInfo("s", "n", "list", codec.schema, ttl=True), [keys[0] + bytes(8)] if keys else [], [late] if keys else [])


@given(st.lists(ANYTHING, max_size=5))
def test_values_of_no_type(values: list[Any]) -> None:
    stored = [encode_untyped(value) for value in values]
    for value in stored:
        assert from_text(to_text(value)) == value
    checked(StateInfo("s", "n", "value", "any"), [key_codec().encode(n) for n in range(len(values))], stored)


@pytest.mark.parametrize(("tp", "strategy"), KEYS, ids=[f"{n}-{tp}" for n, (tp, _) in enumerate(KEYS)])
@given(data=st.data())
@shared_between(len(KEYS))
def test_keys(tp: Any, strategy: st.SearchStrategy[Any], data: st.DataObject) -> None:
    """Keys come back byte for byte, in every kind of state, and in the group that the running job looks in."""
    codec = key_codec(tp)
    schema = None if tp is None else codec.schema
    keys = sorted({codec.encode(key) for key in data.draw(st.lists(strategy, max_size=6))})
    for key in keys:
        assert end_of_value(key + b"\x01\x02") == len(key)
    ones = [codec_for(int).encode(1)] * len(keys)
    info = StateInfo("s", "n", "value", "int", key_schema=schema)
    checked(info, keys, ones)
    columns = StateTable.sampled(info, GROUPS, keys, ones)
    table = pa.Table.from_arrays(columns.read(keys, ones), schema=columns.schema)
    assert [group for group, _, _ in columns.write(table)] == [GROUPS.of(key) for key in keys]
    window = encode_window(TimeWindow(-5, 10**12))
    whole = encode_window(GLOBAL)
    spaces = sorted([key + window for key in keys] + [key + whole for key in keys])
    checked(StateInfo("s", "n", "value", "int", key_schema=schema, namespace=16), spaces, ones * 2)
    timers = [sortable_time(time) + key for key in keys for time in (0, MIN_WATERMARK, MAX_WATERMARK, 2**60)]
    checked(StateInfo("s", "timers:event", "timers", key_schema=schema), timers, [b""] * len(timers))
    maps = [space + sub for space in spaces for sub in (key_codec().encode("a"), key_codec().encode((1, "b")))]
    info = StateInfo("s", "n", "map", "int", key_schema=schema, sub_schema="any", namespace=16)
    checked(info, maps, ones[:1] * len(maps))


def test_what_people_see() -> None:
    codec = codec_for(Visit)
    keys = [key_codec().encode(key) for key in ("ann", "bob")]
    seen = datetime(2026, 1, 2, tzinfo=UTC)
    values = [codec.encode(Visit("/", seen, ["x"], {"p": Point(1, 2.0)})), codec.encode(Visit("/a"))]
    table = checked(StateInfo("s", "n", "value", codec.schema), keys, values)
    assert table.drop_columns(["as_json"]).to_pylist() == [
        {"key": "ann", "value": {"page": "/", "seen": seen, "tags": ["x"], "points": [("p", {"x": 1, "y": 2.0})]}},
        {"key": "bob", "value": {"page": "/a", "seen": None, "tags": [], "points": []}},
    ]
    assert table.column("as_json").null_count == 2


def test_keys_of_several_types_are_json() -> None:
    keys = sorted(key_codec().encode(key) for key in (5, "5", (1, "a"), None))
    table = checked(StateInfo("s", "n", "value", "int"), keys, [b"\x01"] * 4)
    assert set(table.column("key").to_pylist()) == {"5", '"5"', '[1,"a"]', None}


def test_what_does_not_fit_is_told() -> None:
    """The sample says integers, then a text comes; and an integer that has more than 64 bits with its sign."""
    info = StateInfo("s", "n", "value", "int")
    keys = [key_codec().encode(key) for key in (1, 2, "three")]
    values = [codec_for(int).encode(value) for value in (1, 2**64 - 1, 3)]
    columns = StateTable.sampled(info, GROUPS, keys[:2], values[:2])
    table = pa.Table.from_arrays(columns.read(keys, values), schema=columns.schema)
    assert table.to_pylist() == [
        {"key": 1, "value": 1, "as_json": None},
        {"key": 2, "value": None, "as_json": '{"value":18446744073709551615}'},
        {"key": None, "value": 3, "as_json": '{"key":"three"}'},
    ]
    assert [entry[1:] for entry in columns.write(table)] == list(zip(keys, values, strict=True))


def test_types_with_limits_are_their_types() -> None:
    ints = checked(StateInfo("s", "n", "value", {"constrained": "int", "by": {"ge": 0}}), [b"\x01"], [b"\x05"])
    assert ints.column("value").to_pylist() == [5]
    moment = datetime(2026, 1, 2)  # noqa: DTZ001 - that is the point
    stored = [codec_for(datetime).encode(moment)]
    naive = checked(StateInfo("s", "n", "value", {"constrained": "datetime", "by": {"tz": False}}), [b"\x01"], stored)
    assert naive.column("value").to_pylist() == [moment]


def test_pickled_values_stay_bytes() -> None:
    class Evil:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
            return pytest.fail, ("it was unpickled",)

    value = pickle.dumps(Evil())
    table = checked(StateInfo("s", "n", "value", PICKLE.schema), [b"\x01"], [value])
    assert table.column("value").to_pylist() == [value]


@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(-(2**70), 2**70), FLOATS), min_size=1, max_size=6, unique_by=lambda r: r[0]
    )
)
def test_chunks(rows: list[tuple[int, int, float]]) -> None:
    index = KeyIndex(key_codec())
    numbers = index.numbers([key_codec().encode(key) for key, _, _ in rows])
    small = np.asarray([big % 1000 for _, big, _ in rows])
    vectors = [[small], [objects([big for _, big, _ in rows])], [np.asarray([real for _, _, real in rows]), small]]
    what = "TumblingWindows(1 h); key k; count(); sum('a'); avg('b')"
    data = dump_chunk(Chunk(numbers, vectors), index, what)
    info = StateInfo("s", "slices", "slices", None, what=what)
    columns = StateTable.sampled(info, KeyGroups(1, NEW_JOBS), [sortable_time(3_600_000) + b"\x01"], [data])
    table = pa.Table.from_arrays(columns.read([sortable_time(3_600_000) + b"\x01"], [data]), schema=columns.schema)
    (row,) = table.to_pylist()
    assert row["keys"] == [key for key, _, _ in rows]
    assert (row["level"], row["rows"]) == (1, len(rows))
    assert [one["of"] for one in msgspec.json.decode(row["aggregates"])] == ["count()", "sum('a')", "avg('b')"]
    assert columns.write(table) == [(0, sortable_time(3_600_000) + b"\x01", data)]


def test_what_is_written_must_fit() -> None:
    columns = StateTable(StateInfo("counts", "n", "value", "int", key_schema="str"), GROUPS)
    with pytest.raises(StateError, match=r"state 'n' of step 'counts' needs a column 'value'"):
        columns.write(pa.table({"key": ["a"]}))
    with pytest.raises(StateError, match="the column 'value' cannot be written"):
        columns.write(pa.table({"key": ["a"], "value": ["not a number"]}))
    with pytest.raises(StateError, match="nulls"):
        columns.write(pa.table({"key": ["a"], "value": pa.array([None], pa.int64())}))
    assert columns.write(pa.table({"key": ["a"], "value": pa.array([1], pa.int8())})) == [
        (GROUPS.of(b"\xa1a"), b"\xa1a", b"\x01")
    ]
    colours = StateTable(StateInfo("s", "n", "value", codec_for(Colour).schema, key_schema="str"), GROUPS)
    with pytest.raises(StateError, match="'green' is not one of the values"):
        colours.write(pa.table({"key": ["a"], "value": ["green"]}))
