"""Joins by windows, by version and as a whole, and what keeps rows of a key: against double loops, whatever the cut."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    DataStream,
    FileSink,
    KeyedStream,
    OutputTag,
    ProcessFunction,
    SessionWindows,
    SlidingWindows,
    StreamEnvironment,
    TumblingWindows,
    Watermarks,
)
from penstock.changes import RowKind
from penstock.errors import PenstockError, PlanError
from penstock.joins.keyed_steps import Changed
from penstock.joins.regular.first_within import FirstWithin
from penstock.testing import KeyedHarness, run_inline
from tests.joins.naive import Came, in_order, ms, sides
from tests.joins.test_interval_join import taken_apart

Rows = list[dict[str, Any]]
HOWS = ("inner", "left", "right", "full")


class WithTime(ProcessFunction[Any, Any]):
    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield (*value, ctx.timestamp)


def pair(left: Any, right: Any) -> tuple[Any, Any]:
    return left, right


def in_one_order(left: Rows, right: Rows) -> list[tuple[Rows, Rows]]:
    """The records of a window; what their order is in sessions that were merged is not promised."""
    return [(sorted(left, key=repr), sorted(right, key=repr))]


def keyed(env: StreamEnvironment, rows: Rows, name: str, slack: int) -> KeyedStream[Any, dict[str, Any]]:
    watermarks: Watermarks[Any] = Watermarks.bounded(slack=ms(slack), timestamp="t")
    return env.from_collection(rows, watermarks=watermarks, name=name).key_by("k")


def run(make: Callable[[StreamEnvironment], DataStream[Any]], data: st.DataObject) -> list[Any]:
    """The results, by some cut, at some parallelism, perhaps going on at another."""
    cut = data.draw(st.sampled_from([3, 10, 100]))
    first, second = data.draw(st.integers(1, 3)), data.draw(st.none() | st.integers(1, 3))

    def env(parallelism: int) -> StreamEnvironment:
        return StreamEnvironment("joins", parallelism=parallelism, max_records_per_epoch=cut, first_records_per_epoch=cut)

    if second is None:
        return run_inline(make(env(first)))
    with tempfile.TemporaryDirectory() as storage:
        found = run_inline(make(env(first)), storage=storage, epochs=data.draw(st.integers(1, 3)))
        return found + run_inline(make(env(second)), storage=storage)


def counted(found: Any) -> Counter[str]:
    return Counter(map(repr, found))


# --- windows ---------------------------------------------------------------------------------------------------------------


def windows_of(kind: str, came: list[Came]) -> Iterator[tuple[int, Any, list[Came]]]:
    """(end, key, records) of each window, records that are late left out; of sessions without late records only."""
    by_key: dict[Any, list[Came]] = {}
    for one in came:
        by_key.setdefault(one.row["k"], []).append(one)
    for key, mine in by_key.items():
        if kind == "session":
            runs: list[list[Came]] = []
            for one in sorted(mine, key=lambda each: each.time):
                if runs and one.time <= runs[-1][-1].time + 6:
                    runs[-1].append(one)
                else:
                    runs.append([one])
            for session in runs:
                yield session[-1].time + 6, key, sorted(session, key=lambda each: each.place)
            continue
        size, slide = (10, 10) if kind == "tumbling" else (10, 5)
        ends = {end for one in mine for end in range((one.time // slide + 1) * slide, one.time + size + 1, slide)}
        for end in sorted(ends):
            there = [one for one in mine if end - size <= one.time < end and one.tick < end - 1]
            if there:
                yield end, key, there


WINDOWS = {"tumbling": TumblingWindows(ms(10)), "sliding": SlidingWindows(ms(10), ms(5)), "session": SessionWindows(ms(6))}


@given(sides(20), sides(20), st.sampled_from(sorted(WINDOWS)), st.sampled_from([*HOWS, "co-group"]), st.booleans(), st.data())
def test_window_joins(left: Rows, right: Rows, kind: str, how: str, columnar: bool, data: st.DataObject) -> None:
    slack = 100 if kind == "session" else data.draw(st.integers(0, 12))  # of sessions nothing is late

    def make(env: StreamEnvironment) -> DataStream[Any]:
        a, b = keyed(env, left, "left", slack), keyed(env, right, "right", slack)
        if how == "co-group":
            return a.co_group(b).window(WINDOWS[kind]).apply(in_one_order, name="join").process(WithTime())
        joined: Any = a.join(b).window(WINDOWS[kind])
        joined = joined if how == "inner" else getattr(joined, how)()
        columns = [{name: f"{side}{name}" for name in "ktv"} for side in "lr"]
        made = joined.select(left=columns[0], right=columns[1], name="join") if columnar else joined.apply(pair, name="join")
        timed: DataStream[Any] = (made.map(taken_apart) if columnar else made).process(WithTime())
        return timed

    want: list[Any] = []
    for end, _, there in windows_of(kind, in_order(left, right, slack)):
        mine, theirs = ([one.row for one in there if one.side == side] for side in (0, 1))
        if how == "co-group":
            want.append((*in_one_order(mine, theirs)[0], end - 1))
        else:
            if not theirs and how in ("left", "full"):
                theirs = [None]  # type: ignore[list-item]
            elif not mine and how in ("right", "full"):
                mine = [None]  # type: ignore[list-item]
            want += [(a, b, end - 1) for a in mine for b in theirs]
    assert counted(run(make, data)) == counted(want)


def test_late_records_of_windows_are_side_outputs() -> None:
    env = StreamEnvironment("joins", parallelism=1)
    rows = [{"k": 1, "t": 100, "v": 0}, {"k": 1, "t": 5, "v": 1}]
    tags: list[OutputTag[Any]] = [OutputTag("left"), OutputTag("right")]
    joined = keyed(env, rows, "left", 0).join(keyed(env, rows, "right", 0)).window(TumblingWindows(ms(10)))
    joined = joined.late(left=tags[0], right=tags[1])
    for made in (joined.apply(pair, name="records"), joined.select(left=["v"], right={"v": "w"}, name="columns")):
        late = made.side_output(tags[0]).map(lambda row: ("l", row)).union(made.side_output(tags[1]).map(lambda row: ("r", row)))
        assert sorted(run_inline(late), key=repr) == [("l", rows[1]), ("r", rows[1])]


# --- versions --------------------------------------------------------------------------------------------------------------


@given(sides(), sides(15), st.booleans(), st.booleans(), st.integers(0, 12), st.data())
def test_temporal_joins(left: Rows, right: Rows, keeps: bool, columnar: bool, slack: int, data: st.DataObject) -> None:
    late: tuple[OutputTag[Any], OutputTag[Any]] = (OutputTag("late left"), OutputTag("late right"))

    def make(env: StreamEnvironment) -> DataStream[Any]:
        joined: Any = keyed(env, left, "left", slack).temporal_join(keyed(env, right, "versions", slack))
        joined = joined.late(left=late[0], right=late[1])
        joined = joined.left() if keeps else joined
        columns = [{name: f"{side}{name}" for name in "ktv"} for side in "lr"]
        made = joined.select(left=columns[0], right=columns[1], name="join") if columnar else joined.apply(pair, name="join")
        timed: DataStream[Any] = (made.map(taken_apart) if columnar else made).process(WithTime())
        return timed.union(*(made.side_output(tag).map(lambda row: ("late", row)) for tag in late))

    came = in_order(left, right, slack)
    versions = [one for one in came if one.side == 1 and one.time >= one.tick]
    want: list[Any] = [("late", one.row) for one in came if one.side == 1 and one.time < one.tick]
    for one in (each for each in came if each.side == 0):
        if one.time < one.tick:
            want.append(("late", one.row))
            continue
        joined_at = max(one.time, one.tick + 1)  # time gets there before the records with this tick
        known = [v for v in versions if v.row["k"] == one.row["k"] and v.time <= one.time and v.tick < joined_at]
        if known or keeps:
            version = max(known, key=lambda v: (v.time, v.place)).row if known else None
            want.append((one.row, version, one.time))
    assert counted(run(make, data)) == counted(want)


def test_a_version_can_end() -> None:
    env = StreamEnvironment("joins")
    changes = [
        {"k": 1, "t": 0, "op": "+I", "rate": 10},
        {"k": 1, "t": 5, "op": "-U", "rate": 10},
        {"k": 1, "t": 5, "op": "+U", "rate": 20},
        {"k": 1, "t": 9, "op": "-D", "rate": 20},
    ]
    watermarks: Watermarks[Any] = Watermarks.monotonous(timestamp="t")
    rates = env.from_collection(changes, watermarks=watermarks, name="rates").as_changes("op").key_by("k")
    orders = keyed(env, [{"k": 1, "t": t} for t in (1, 4, 5, 8, 9, 12)], "orders", 0)
    for columnar in (True, False):
        joined = orders.temporal_join(rates).left().select(left=["t"], right=["rate"], columnar=columnar)
        found = [(row["t"], row["rate"]) for row in run_inline(joined)]
        assert found == [(1, 10), (4, 10), (5, 20), (8, 20), (9, None), (12, None)]


@given(sides(20), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.booleans()), max_size=20), st.booleans(), st.data())
def test_versions_that_end(left: Rows, given_: list[tuple[int, int, bool]], columnar: bool, data: st.DataObject) -> None:
    versions, now = [], 0
    for number, (key, step, ends) in enumerate(given_):
        now += step
        versions.append({"k": key, "t": now, "v": number, "op": "-D" if ends else "+U"})

    def make(env: StreamEnvironment) -> DataStream[Any]:
        watermarks: Watermarks[Any] = Watermarks.bounded(slack=ms(50), timestamp="t")
        rows = env.from_collection(versions, watermarks=watermarks, name="versions").as_changes("op").key_by("k")
        joined = keyed(env, left, "left", 50).temporal_join(rows).left()
        return joined.select(left={"k": "k", "t": "t", "v": "l"}, right={"v": "r"}, columnar=columnar, name="join")

    want = []
    for row in left:
        known = [one for one in versions if one["k"] == row["k"] and one["t"] <= row["t"]]
        last = max(known, key=lambda one: (one["t"], one["v"])) if known else None
        version = None if last is None or last["op"] == "-D" else last["v"]
        want.append({"k": row["k"], "t": row["t"], "l": row["v"], "r": version})
    assert counted(run(make, data)) == counted(want)


# --- whole streams ---------------------------------------------------------------------------------------------------------


def applied(changes: list[Any]) -> Counter[str]:
    """The table that changes come to."""
    table: Counter[str] = Counter()
    for change in changes:
        table[repr(change["row"])] += 1 if change["kind"] in ("+I", "+U") else -1
        assert table[repr(change["row"])] >= 0
    return +table


@st.composite
def histories(draw: Any) -> Rows:
    """Rows that come and go: never one goes that is not there."""
    found: Rows = []
    there: Rows = []
    for time in range(draw(st.integers(0, 12))):
        if there and draw(st.integers(0, 1)):
            row = there.pop(draw(st.integers(0, len(there) - 1)))
            found.append({**row, "t": time, "op": "-D"})
        else:
            row = {"k": draw(st.integers(0, 1)), "v": draw(st.integers(0, 2))}
            there.append(row)
            found.append({**row, "t": time, "op": "+I"})
    return found


@given(histories(), histories(), st.sampled_from([*HOWS, "semi", "anti"]), st.data())
def test_regular_joins_of_streams_that_update(left: Rows, right: Rows, how: str, data: st.DataObject) -> None:
    def changing(env: StreamEnvironment, rows: Rows, name: str) -> KeyedStream[Any, Any]:
        stream = env.from_collection(rows, watermarks=Watermarks.monotonous(timestamp="t"), name=name).as_changes("op")
        return stream.map(lambda row: {"k": row["k"], "v": row["v"]}).key_by("k")

    def make(env: StreamEnvironment) -> DataStream[Any]:
        joined: Any = changing(env, left, "left").join(changing(env, right, "right"))
        if how in ("semi", "anti"):
            made = getattr(joined, how)(name="join")
        else:
            made = (joined if how == "inner" else getattr(joined, how)()).apply(pair, name="join")
        rows: DataStream[Any] = made.map(lambda row: {"row": row}).changes_as_rows("kind")
        return rows

    def table(rows: Rows) -> list[dict[str, Any]]:
        there: list[dict[str, Any]] = []
        for row in rows:
            plain = {"k": row["k"], "v": row["v"]}
            there.append(plain) if row["op"] == "+I" else there.remove(plain)
        return there

    lefts, rights = table(left), table(right)
    want: list[Any] = [(a, b) for a in lefts for b in rights if a["k"] == b["k"]]
    if how in ("semi", "anti"):
        want = [a for a in lefts if any(a["k"] == b["k"] for b in rights) == (how == "semi")]
    if how in ("left", "full"):
        want += [(a, None) for a in lefts if not any(a["k"] == b["k"] for b in rights)]
    if how in ("right", "full"):
        want += [(None, b) for b in rights if not any(a["k"] == b["k"] for a in lefts)]
    assert applied(run(make, data)) == counted(want)


def test_rows_are_forgotten_after_their_time() -> None:
    env = StreamEnvironment("joins", parallelism=1)
    left = keyed(env, [{"k": 1, "t": 0, "v": 1}, {"k": 2, "t": 40}, {"k": 1, "t": 50, "v": 2}], "left", 0)
    right = keyed(env, [{"k": 1, "t": 2, "v": 3}, {"k": 3, "t": 45}, {"k": 1, "t": 60, "v": 4}], "right", 0)
    pairs = left.join(right).ttl(0.02).apply(pair, name="join")
    assert [(a["v"], b["v"]) for a, b in run_inline(pairs)] == [(1, 3), (2, 4)]


@given(histories(), histories(), st.sampled_from(HOWS[1:]), st.integers(1, 12), st.booleans(), st.data())
def test_outer_joins_find_the_pairs_of_the_inner_one(
    left: Rows, right: Rows, how: str, ttl: int, appends: bool, data: st.DataObject
) -> None:
    """Whatever has met, and been counted, in the meantime."""
    if appends:
        left, right = ([row for row in rows if row["op"] == "+I"] for rows in (left, right))

    def changing(env: StreamEnvironment, rows: Rows, name: str) -> KeyedStream[Any, Any]:
        stream = env.from_collection(rows, watermarks=Watermarks.monotonous(timestamp="t"), name=name).as_changes("op")
        return stream.map(lambda row: {"k": row["k"], "v": row["v"]}).key_by("k")

    def made(how: str) -> Callable[[StreamEnvironment], DataStream[Any]]:
        def make(env: StreamEnvironment) -> DataStream[Any]:
            joined: Any = changing(env, left, "left").join(changing(env, right, "right")).ttl(ms(ttl))
            joined = joined if how == "inner" else getattr(joined, how)()
            rows: DataStream[Any] = joined.apply(pair, name="join").map(lambda row: {"row": row}).changes_as_rows("kind")
            return rows

        return make

    found = run(made(how), data)
    applied(found)
    pairs = [change for change in found if None not in change["row"]]
    assert counted(pairs) == counted(run(made("inner"), data))


@pytest.mark.parametrize("how", HOWS)
def test_partners_do_not_let_a_row_live_longer(how: str) -> None:
    def found(left: Rows, right: Rows, ttl: int) -> list[tuple[Any, Any]]:
        env = StreamEnvironment("joins", parallelism=1)
        joined: Any = keyed(env, left, "left", 0).join(keyed(env, right, "right", 0)).ttl(ms(ttl))
        made = (joined if how == "inner" else getattr(joined, how)()).apply(pair, name="join")
        rows = run_inline(made.map(lambda row: {"row": row}).changes_as_rows("kind"))
        return [(a["v"], b["v"]) for a, b in (row["row"] for row in rows) if a and b]

    one = [{"k": 1, "t": 15, "v": 0}]
    few = [{"k": 1, "t": 1, "v": 0}, {"k": 2, "t": 25, "v": 7}, {"k": 2, "t": 26, "v": 8}, {"k": 1, "t": 27, "v": 1}]
    assert found(one, few, 20) == [(0, 0), (0, 1)]
    many = [{"k": 1, "t": time, "v": time} for time in range(5, 200, 5)]
    met = [b for _, b in found([{"k": 1, "t": 0, "v": 0}], many, 20)]
    assert met == [5, 10, 15, 20, 25]  # the watermark is a little behind


def test_a_join_is_outer_in_one_way() -> None:
    env = StreamEnvironment("joins")
    left, right = keyed(env, [], "left", 0), keyed(env, [], "right", 0)
    whole: Any = left.join(right)
    for joined in (whole, whole.window(TumblingWindows(ms(10))), left.interval_join(right).between(-1, 1)):
        joined.left().left()
        with pytest.raises(PlanError, match=r"both left and right(.|\n)*full\(\)"):
            joined.left().right()
        with pytest.raises(PlanError, match="both full and left"):
            joined.full().left()


def test_what_is_of_keys_needs_keys() -> None:
    env = StreamEnvironment("joins")
    rows: Any = env.from_collection([{"k": 1}], name="rows")
    for name in ("join", "interval_join", "temporal_join", "co_group"):
        with pytest.raises(PlanError, match=rf"{name} needs keyed streams(.|\n)*both sides(.|\n)*key_by"):
            getattr(rows, name)(rows)
    for name in ("deduplicate", "top_n"):
        with pytest.raises(PlanError, match=rf"{name} needs a keyed stream(.|\n)*key_by"):
            getattr(rows, name)(3, by="v")


def test_a_temporal_join_takes_no_changes_of_its_left_side() -> None:
    env = StreamEnvironment("joins")
    watermarks: Watermarks[Any] = Watermarks.monotonous(timestamp="t")
    rows: Rows = [{"k": 1, "t": 0, "op": "-D"}]
    changing = env.from_collection(rows, watermarks=watermarks, name="rows").as_changes("op").key_by("k")
    versions = keyed(env, [], "versions", 0)
    joined: Any = changing.temporal_join(versions)
    for make in (joined.select, lambda: joined.select(columnar=False), lambda: joined.apply(pair)):
        with pytest.raises(PlanError, match=r"does not take -U, \+U, -D"):
            make()
    versions.temporal_join(changing).select(left=["k"], right={"k": "version"})
    versions.temporal_join(changing).apply(pair)


def test_sinks_that_only_append_refuse_what_updates(tmp_path: Any) -> None:
    env = StreamEnvironment("joins")
    left, right = keyed(env, [], "left", 0), keyed(env, [], "right", 0)
    left.join(right).apply(pair, name="inner").sink_to(FileSink(str(tmp_path / "inner"), format="json"))
    for made in (left.join(right).left().apply(pair, name="outer"), left.top_n(1, "v"), left.deduplicate(keep="last")):
        with pytest.raises(PlanError, match="does not take"):
            made.sink_to(FileSink(str(tmp_path / "outer"), format="csv"))


# --- rows of keys ----------------------------------------------------------------------------------------------------------


@given(sides(), st.sampled_from(["first", "last", "top"]), st.data())
def test_rows_of_keys(rows: Rows, what: Any, data: st.DataObject) -> None:
    def make(env: StreamEnvironment) -> DataStream[Any]:
        stream = keyed(env, rows, "rows", 0)
        made = stream.top_n(2, "t", name="top") if what == "top" else stream.deduplicate(keep=what, name="one")
        return made.map(lambda row: {"row": row}).changes_as_rows("kind")

    came = [one.row for one in in_order(rows, [], 0)]
    want: Rows = []
    for key in {row["k"] for row in rows}:
        mine = [row for row in came if row["k"] == key]
        if what == "top":
            want += sorted(mine, key=lambda row: -row["t"])[:2]
        else:
            want.append(mine[0 if what == "first" else -1])
    assert applied(run(make, data)) == counted(want)


@pytest.mark.parametrize("cut", [1, 2, 100])
@pytest.mark.parametrize(
    ("slack", "times", "want"),
    [
        (30, [0, 20, 40, 60], [0, 20, 40, 60]),
        (30, [0, 9, 10, 19, 20], [0, 10, 20]),
        (30, [20, 11, 10, 29, 30, 0], [20, 10, 30, 0]),
        (0, [20, 40, 25, 41, 20, 60], [20, 40, 25, 20, 60]),  # what is late meets those that are still known
    ],
)
def test_duplicates_are_near_one_another_in_their_own_time(slack: int, times: list[int], want: list[int], cut: int) -> None:
    env = StreamEnvironment("joins", parallelism=1, max_records_per_epoch=cut, first_records_per_epoch=cut)
    rows = keyed(env, [{"k": 1, "t": time} for time in times], "rows", slack)
    assert [row["t"] for row in run_inline(rows.deduplicate(within=ms(10), name="one"))] == want


@given(sides(), st.integers(0, 12), st.data())
def test_duplicates_within(rows: Rows, within: int, data: st.DataObject) -> None:
    """Here no record is late."""
    within += 1
    want: Rows = []
    for row in (one.row for one in in_order(rows, [], 100)):
        if all(row["k"] != other["k"] or abs(row["t"] - other["t"]) >= within for other in want):
            want.append(row)
    made = run(lambda env: keyed(env, rows, "rows", 100).deduplicate(within=ms(within), name="one"), data)
    assert counted(made) == counted(want)


def test_times_of_duplicates_are_forgotten() -> None:
    with KeyedHarness(FirstWithin(10), key=lambda value: "a") as harness:
        harness.send(Changed("x", 0), 5)
        assert harness.state_entries() == 1
        harness.watermark(15)
        assert harness.state_entries() == 0


def test_what_emits_changes_says_so() -> None:
    env = StreamEnvironment("joins", executor="inline")
    rows = keyed(env, [], "rows", 0)
    last = rows.deduplicate(keep="last", name="last")
    assert env.graph.nodes[last._step].emits == {RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER}
    assert "keeps the last record of each key" in env.explain()
    with pytest.raises(PlanError, match="keep='newest'"):
        rows.deduplicate(keep="newest")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="at least 1"):
        rows.top_n(0, "t")


@pytest.mark.parametrize("what", ["interval_join", "join", "co_group", "temporal_join", "connect"])
def test_keys_of_different_numbers_of_fields_are_refused(what: str) -> None:
    env = StreamEnvironment("joins")
    left, right = (env.from_collection([{"id": 1, "x": 2}], name=name) for name in ("left", "right"))
    with pytest.raises(PlanError, match=f"{what}: the keys of both sides have different numbers of fields"):
        getattr(left.key_by("id", "x"), what)(right.key_by("id"))
    getattr(left.key_by("id", "x"), what)(right.key_by("x", "id"))
    getattr(left.key_by("id", "x"), what)(right.key_by(lambda row: (row["x"], row["id"])))


# --- null keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [("k",), ("k", "l")])
@pytest.mark.parametrize(
    ("what", "how"),
    [*((what, how) for what in ("interval", "window", "whole") for how in HOWS), ("temporal", "inner"), ("temporal", "left")],
)
@pytest.mark.parametrize("columnar", [True, False])
def test_null_keys_match_nothing(what: str, how: str, fields: tuple[str, ...], columnar: bool) -> None:
    lefts: Rows = [{"k": key, "l": 1, "t": 5, "v": number} for number, key in enumerate((None, 1, None))]
    rights: Rows = [{"k": key, "l": 1, "t": 4, "w": number} for number, key in enumerate((None, 1, None))]
    found: set[tuple[int | None, int | None]] = {(1, 1)}
    if how in ("left", "full"):
        found |= {(0, None), (2, None)}
    if how in ("right", "full"):
        found |= {(None, 0), (None, 2)}
    for cut in (1, 100):
        env = StreamEnvironment("joins", parallelism=2, max_records_per_epoch=cut, first_records_per_epoch=cut)
        watermarks: Watermarks[Any] = Watermarks.bounded(slack=ms(10), timestamp="t")
        left, right = (
            env.from_collection(rows, watermarks=watermarks, name=name).key_by(*fields)
            for name, rows in (("left", lefts), ("right", rights))
        )
        join: Any
        if what == "interval":
            join = left.interval_join(right).between(ms(-5), ms(5))
        elif what == "window":
            join = left.join(right).window(TumblingWindows(ms(100)))
        else:
            join = left.temporal_join(right) if what == "temporal" else left.join(right)
        join = join if how == "inner" else getattr(join, how)()
        if columnar:
            rows = join.select(left=["v"], right=["w"], name="join").changes_as_rows("kind")
            got = applied([{"row": (row["v"], row["w"]), "kind": row["kind"]} for row in run_inline(rows)])
        else:
            pairs = join.apply(lambda a, b: {"row": (a and a["v"], b and b["w"])}, name="join").changes_as_rows("kind")
            got = applied(run_inline(pairs))
        assert got == counted(found)


@pytest.mark.parametrize(("how", "want"), [("semi", [1]), ("anti", [0, 2])])
def test_null_keys_have_no_partner_in_filters(how: str, want: list[int]) -> None:
    rows: Rows = [{"k": key, "t": 5, "v": number} for number, key in enumerate((None, 1, None))]
    env = StreamEnvironment("joins", parallelism=1)
    left, right = keyed(env, rows, "left", 10), keyed(env, rows, "right", 10)
    kept = getattr(left.join(right), how)(name="kept").map(lambda row: {"row": row["v"]}).changes_as_rows("kind")
    assert applied(run_inline(kept)) == counted(want)


def test_what_rows_are_kept_may_not_change(tmp_path: Path) -> None:
    rows = [{"k": 0, "t": time, "v": -time} for time in range(8)]

    def run_part(make: Callable[[KeyedStream[Any, Any]], DataStream[Any]], storage: str, **options: Any) -> None:
        env = StreamEnvironment("joins", parallelism=1, max_records_per_epoch=2, first_records_per_epoch=2)
        run_inline(make(keyed(env, rows, "rows", 0)).changes_as_rows("kind"), storage=storage, **options)

    def top(*arguments: Any, **options: Any) -> Callable[[KeyedStream[Any, Any]], DataStream[Any]]:
        return lambda stream: stream.top_n(*arguments, **options, name="kept")

    def one(keep: Any) -> Callable[[KeyedStream[Any, Any]], DataStream[Any]]:
        return lambda stream: stream.deduplicate(keep=keep, name="kept")

    cases = [
        (top(2, "t"), [top(3, "t"), top(2, "v"), top(2, "t", largest=False), top(2, lambda row: row["t"])]),
        (one("first"), [one("last")]),
    ]
    for number, (before, others) in enumerate(cases):
        storage = str(tmp_path / str(number))
        run_part(before, storage, epochs=2)
        for after in others:
            with pytest.raises(PenstockError, match="has changed since its state was written"):
                run_part(after, storage)
        run_part(before, storage)
