"""Streams that update: rows become changes, kinds stay with their records through all steps, and changes become rows again."""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    CollectSink,
    DataStream,
    FileSink,
    FileSource,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    StreamEnvironment,
    TumblingWindows,
    Watermarks,
    col,
    count,
    read_output,
)
from penstock.changes import ANY_CHANGES, APPENDS, KINDS, RowChange, RowKind, changes_in, kind_code
from penstock.compile.explain import explain_data, explain_text
from penstock.config import NO_RESTART
from penstock.connectors import SqliteSink, WriteAheadSink
from penstock.errors import ConfigError, PenstockError, PlanError, SinkError, UserCodeError
from penstock.plan.nodes import Input
from penstock.plan.schemas import schema_of
from penstock.records import DICT_ROW, Columns, Records, one_batch
from penstock.testing import End, Record, ScriptedSource, Watermark, run_inline, scripted_watermarks

CDC: list[dict[str, Any]] = [
    {"op": "+I", "user": "ann", "n": 1},
    {"op": "+I", "user": "bob", "n": 5},
    {"op": "-U", "user": "ann", "n": 1},
    {"op": "+U", "user": "ann", "n": 2},
    {"op": "-D", "user": "bob", "n": 5},
]
WITHOUT_OP = [{name: value for name, value in row.items() if name != "op"} for row in CDC]


def environment(**settings: Any) -> StreamEnvironment:
    return StreamEnvironment("changes", **{"executor": "inline", "parallelism": 2, "restart": NO_RESTART, **settings})


def changes(rows: list[dict[str, Any]] = CDC, **settings: Any) -> DataStream[dict[str, Any]]:
    return environment(**settings).from_collection(rows).as_changes("op", name="cdc")


def said(found: list[Any]) -> list[tuple[str, Any]]:
    return [(str(change.kind), change.record) for change in found]


# --- rows become changes -------------------------------------------------------------------------------------------------------


def test_a_field_says_what_a_row_is() -> None:
    found = run_inline(changes())
    assert said(found) == [(row["op"], rest) for row, rest in zip(CDC, WITHOUT_OP, strict=True)]
    assert str(found[3]) == "+U {'user': 'ann', 'n': 2}"


def test_a_column_says_what_a_row_is(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(CDC), tmp_path / "cdc.parquet")
    stream = environment().from_source(FileSource(str(tmp_path))).as_changes("op")
    schema = schema_of(stream._env.graph, Input(step=stream._step), {})
    assert schema is not None
    assert schema.names == ("user", "n")
    assert said(run_inline(stream)) == [(row["op"], rest) for row, rest in zip(CDC, WITHOUT_OP, strict=True)]


@dataclass
class Event:
    kind: int
    user: str


def test_a_function_says_what_a_row_is() -> None:
    rows = [Event(0, "ann"), Event(3, "ann")]
    stream = environment().from_collection(rows).as_changes(lambda event: KINDS[event.kind])
    found: list[Any] = run_inline(stream)
    assert found == [RowChange(RowKind.INSERT, rows[0]), RowChange(RowKind.DELETE, rows[1])]
    assert said(run_inline(environment().from_collection(rows).as_changes("kind"))) == [
        ("+I", {"user": "ann"}),
        ("-D", {"user": "ann"}),
    ]
    tuples = environment().from_collection([("-D", 1), ("+I", 2)]).as_changes("f0")
    assert said(run_inline(tuples)) == [("-D", {"f1": 1}), ("+I", {"f1": 2})]


@pytest.mark.parametrize("value", [*map(str, KINDS), *KINDS])
def test_kinds_are_symbols_codes_or_row_kinds(value: Any) -> None:
    assert KINDS[kind_code(value)] == RowKind(value) == KINDS[kind_code(RowKind(value).code)]


@pytest.mark.parametrize("value", [True, None, "I", "+X", 4, -1, [], float("nan")])
def test_anything_else_is_no_kind(value: Any) -> None:
    with pytest.raises(ValueError, match="is no kind of change: expected one of"):
        kind_code(value)


BROKEN = [*CDC[:2], {"op": "?", "user": "eve", "n": 0}, {"user": "ida", "n": 0}, {"op": None, "user": "joe", "n": 0}, *CDC[2:]]


@pytest.mark.parametrize("columns", [False, True])
def test_what_says_no_kind_is_rejected_as_the_policy_says(tmp_path: Path, columns: bool) -> None:
    def rows() -> DataStream[Any]:
        env = environment()
        if not columns:
            return env.from_collection(BROKEN)
        pq.write_table(pa.Table.from_pylist(BROKEN), tmp_path / "rows.parquet")
        return env.from_source(FileSource(str(tmp_path)))

    with pytest.raises(UserCodeError, match=r"step 'cdc': '\?' is no kind of change") as refused:
        run_inline(rows().as_changes("op", name="cdc"))
    assert "eve" in refused.value.detail
    assert 'errors="skip"' in refused.value.hint
    assert said(run_inline(rows().as_changes("op", errors="skip"))) == said(run_inline(changes()))
    letters = CollectSink()
    stream = rows().as_changes("op", errors="dead_letter")
    stream.dead_letters().sink_to(letters)
    assert said(run_inline(stream)) == said(run_inline(changes()))
    assert [letter.record["user"] for letter in letters.results()] == ["eve", "ida", "joe"]


def test_a_function_that_says_no_kind_is_named() -> None:
    with pytest.raises(UserCodeError, match="'x' is no kind of change") as refused:
        run_inline(environment().from_collection([1]).as_changes(lambda _: "x"))
    assert "test_changes.py" in refused.value.detail
    stream = environment().from_collection(["+I", "x", "-D"]).as_changes(lambda value: value, errors="skip")
    assert said(run_inline(stream)) == [("+I", "+I"), ("-D", "-D")]


def test_a_field_that_is_not_there_is_found_when_the_program_is_built() -> None:
    with pytest.raises(PlanError, match="step 'cdc': the records have no field 'opp'") as refused:
        environment().from_collection(CDC).as_changes("opp", name="cdc")
    assert "did you mean op?" in str(refused.value)
    with pytest.raises(PlanError, match="name a field, or give a function"):
        environment().from_collection(CDC).as_changes(7)  # type: ignore[call-overload]
    with pytest.raises(PlanError, match="cannot be called as kind"):
        environment().from_collection(CDC).as_changes(lambda: "+I")  # type: ignore[arg-type,misc,unused-ignore]


# --- changes become rows -------------------------------------------------------------------------------------------------------


def test_changes_as_rows() -> None:
    expected = [{**rest, "kind": row["op"]} for row, rest in zip(CDC, WITHOUT_OP, strict=True)]
    assert run_inline(changes().changes_as_rows()) == expected
    assert run_inline(changes().map(lambda r: (r["user"], r["n"])).changes_as_rows("op"))[0] == {"f0": "ann", "f1": 1, "op": "+I"}


def test_rows_that_are_added_are_inserts() -> None:
    assert run_inline(environment().from_collection([7]).changes_as_rows()) == [{"value": 7, "kind": "+I"}]


def test_a_field_of_that_name_is_not_overwritten() -> None:
    with pytest.raises(PlanError, match="the records have a field 'n' already"):
        environment().from_collection(CDC).changes_as_rows("n")
    with pytest.raises(PlanError, match="step 'changes_as_rows-1': the records have a field 'n' already") as refused:
        run_inline(environment().from_collection([1]).map(lambda n: {"n": n}).changes_as_rows("n"))
    assert "another name" in str(refused.value)


def test_keyed_steps_take_changes_as_rows() -> None:
    totals = changes().changes_as_rows().key_by("user").fold(0, lambda total, row: total + row["n"])
    assert sorted(run_inline(totals)) == [1, 2, 4, 5, 10]


# --- kinds stay with their records ---------------------------------------------------------------------------------------------


def test_steps_without_state_keep_kinds() -> None:
    stream: DataStream[Any] = (
        changes()
        .map(lambda r: {**r, "m": r["n"] + 1})
        .filter(lambda r: r["n"] != 5)
        .flat_map(lambda r: [r, r] if r["n"] == 1 else [r])
        .filter(col("n") < 9)
        .with_columns(n=col("n") * 10)
        .select("user", "n")
        .map_batches(lambda batch: batch, aligned=True)
        .map_batches(lambda batch: batch.take(pa.array(range(batch.num_rows))))
    )
    ann = [("+I", 10), ("+I", 10), ("-U", 10), ("-U", 10), ("+U", 20)]
    assert said(run_inline(stream)) == [(kind, {"user": "ann", "n": n}) for kind, n in ann]


class Tell(ProcessFunction[Any, Any]):
    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        ctx.output(OutputTag("seen"), str(ctx.kind))
        if value["n"] == 2:
            raise ValueError("two")
        yield value["n"]


def test_process_sees_the_kind_and_side_outputs_have_it() -> None:
    stream = changes().process(Tell(), errors="dead_letter")
    seen, letters = CollectSink(), CollectSink()
    stream.side_output(OutputTag[str]("seen")).sink_to(seen)
    stream.dead_letters().sink_to(letters)
    assert said(run_inline(stream)) == [("+I", 1), ("+I", 5), ("-U", 1), ("-D", 5)]
    assert said(seen.results()) == [("+I", "+I"), ("+I", "+I"), ("-U", "-U"), ("-D", "-D")]
    assert [letter.record["n"] for letter in letters.results()] == [2]  # an append-only stream


def test_process_of_an_append_only_stream_sees_inserts() -> None:
    class Kind(ProcessFunction[Any, Any]):
        def process(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield ctx.kind

    assert run_inline(environment().from_collection([1]).process(Kind())) == [RowKind.INSERT]


def test_split_keeps_kinds() -> None:
    parts = changes().split(lambda r: r["user"])
    assert said(run_inline(parts.select("bob"))) == [("+I", WITHOUT_OP[1]), ("-D", WITHOUT_OP[4])]


def test_an_append_only_stream_in_a_union_gives_inserts() -> None:
    stream = changes()
    more = stream._env.from_collection([{"user": "zoe", "n": 0}])
    assert ("+I", {"user": "zoe", "n": 0}) in said(run_inline(more.union(stream)))


def test_a_batch_function_that_loses_its_rows_is_refused() -> None:
    stream: DataStream[Any] = changes().map_batches(lambda _: pa.record_batch({"n": [1]}), name="lost")
    with pytest.raises(
        UserCodeError, match="the kinds of change of the rows that the function returned are not known"
    ) as refused:
        run_inline(stream)
    assert "aligned=True" in refused.value.hint
    assert "timestamp=" not in refused.value.hint


def test_batches_of_one_stream_all_have_kinds_or_none() -> None:
    with pytest.raises(AssertionError, match="some batches of a stream have kinds"):
        one_batch([Records([1]), Records([2]).with_kinds(changes_of(1))])


def changes_of(*codes: int) -> Any:
    return np.asarray(codes, dtype=np.int8)


STEPS: dict[str, Callable[[DataStream[Any]], DataStream[Any]]] = {
    "map": lambda s: s.map(dict),
    "filter": lambda s: s.filter(lambda r: r["n"] % 5 != 4),
    "where": lambda s: s.filter(col("n") % 5 != 3),
    "columns": lambda s: s.with_columns(n=col("n") + 0),
    "select": lambda s: s.select("key", "n"),
    "batches": lambda s: s.map_batches(lambda batch: batch, aligned=True),
    "marked": lambda s: s.map_batches(lambda batch: batch.slice(0)),
    "twice": lambda s: s.flat_map(lambda r: [r, {**r, "n": r["n"] + 100}]),
    "rows and back": lambda s: s.changes_as_rows("k").as_changes("k"),
    "key_by": lambda s: s.key_by("key").map(dict),
    "key_by function": lambda s: s.key_by(lambda r: r["key"]).filter(lambda r: True),
    "key_by others": lambda s: s.key_by(lambda r: r["key"][0]).select("key", "n"),
}


def naive(step: str, rows: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """What a step makes of the changes of one key: kind and number."""
    if step == "filter":
        return [row for row in rows if row[1] % 5 != 4]
    if step == "where":
        return [row for row in rows if row[1] % 5 != 3]
    if step == "twice":
        return [again for kind, n in rows for again in ((kind, n), (kind, n + 100))]
    return rows


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.sampled_from(KINDS), st.integers(0, 9)), max_size=12), min_size=1, max_size=3
    ),
    st.lists(st.sampled_from(sorted(STEPS)), max_size=5),
    st.integers(1, 3),
    st.integers(1, 7),
    st.booleans(),
)
def test_changes_of_a_key_keep_kinds_and_order(
    parts: list[list[tuple[int, str, int]]], steps: list[str], parallelism: int, cut: int, timed: bool
) -> None:
    """Whatever the steps and exchanges, the parallelism, the source partitions and the cut into epochs."""
    scripts: list[Any] = []
    expected: dict[str, Any] = defaultdict(list)
    for part, rows in enumerate(parts):
        script: list[Any] = []
        for place, (key, op, n) in enumerate(rows):
            value: dict[str, Any] = {"op": op, "key": f"{key}-{part}", "n": n}
            script.append(Record(value, place * 10) if timed else Record(value))
            script += [Watermark(place * 10)] if timed and n % 2 else []
            expected[value["key"]].append((op, n))
        scripts.append([*script, End()])
    env = environment(parallelism=parallelism)
    source = ScriptedSource.of(*scripts, cut=cut)
    stream = env.from_source(source, watermarks=scripted_watermarks() if timed else None).as_changes("op")
    for step in steps:
        stream = STEPS[step](stream)
        expected = defaultdict(list, {key: naive(step, rows) for key, rows in expected.items()})
    found: dict[str, Any] = defaultdict(list)
    results: list[Any] = run_inline(stream)
    for kind, record in results:
        found[record["key"]].append((str(kind), record["n"]))
    assert found == {key: rows for key, rows in expected.items() if rows}


# --- who takes changes ---------------------------------------------------------------------------------------------------------


class Shelf(WriteAheadSink):
    def publish(self, id: Any, rows: Any) -> None: ...

    def describe(self) -> str:
        return "the shelf"


REFUSED: dict[str, Callable[[DataStream[Any], Path], Any]] = {
    "process": lambda s, _: s.key_by("user").fold(0, lambda a, b: a, name="it"),
    "reduce": lambda s, _: s.key_by("user").sum("n", name="it"),
    "window": lambda s, _: s.key_by("user").window(TumblingWindows(seconds=1)).aggregate(count(), name="it"),
    "window_all": lambda s, _: s.window_all(TumblingWindows(seconds=1)).reduce(max, name="it"),
    "as_changes": lambda s, _: s.as_changes("user", name="it"),
    "files": lambda s, folder: s.sink_to(FileSink(str(folder)), name="it"),
    "sqlite": lambda s, folder: s.sink_to(SqliteSink(str(folder), "t", ["user", "n"]), name="it"),
    "write ahead": lambda s, _: s.sink_to(Shelf(), name="it"),
}


@pytest.mark.parametrize("how", sorted(REFUSED))
@pytest.mark.parametrize("between", [lambda s: s, lambda s: s.filter(col("n") > 0).map(dict)])
def test_what_takes_only_rows_refuses_a_stream_that_updates(how: str, between: Any, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"step 'it' does not take -U, \+U, -D, which step '(cdc|map-1)' emits") as refused:
        REFUSED[how](between(changes()), tmp_path)
    assert ".changes_as_rows()" in refused.value.hint
    REFUSED[how](between(changes().changes_as_rows("k")), tmp_path)


def test_the_refusal_of_a_sink_reads_well(tmp_path: Path) -> None:
    with pytest.raises(PlanError) as refused:
        changes().sink_to(FileSink(str(tmp_path)), name="out")
    assert str(refused.value) == (
        f"step 'out' does not take -U, +U, -D, which step 'cdc' emits\n"
        f"  out: sink json files in {tmp_path}; it takes +I\n"
        f"  hint: put .changes_as_rows() before it, or choose a sink that takes changes, such as FileSink(kind_field=...) or "
        f"SqliteSink(key=...)"
    )


def test_rebalance_would_lose_the_order() -> None:
    with pytest.raises(PlanError, match="out of order"):
        changes().rebalance().map(dict)
    assert len(run_inline(changes().changes_as_rows().rebalance().map(dict))) == len(CDC)


def test_a_refused_step_leaves_the_program_as_it_was() -> None:
    stream = changes()
    with pytest.raises(PenstockError):
        stream.key_by("user").sum("n", name="it")
    assert len(run_inline(stream.map(dict, name="it"))) == len(CDC)


def test_explain_says_that_a_stream_updates() -> None:
    stream = changes().map(dict)
    stream.changes_as_rows().print()
    told = {step["id"]: step.get("changes") for step in explain_data(stream._env.graph, stream._env.config)["steps"]}
    assert told == {"source-1": None, "cdc": [*KINDS], "map-1": [*KINDS], "changes_as_rows-1": None, "sink-1": None}
    assert "  updates: emits +I, -U, +U, -D\n" in explain_text(stream._env.graph, stream._env.config)
    assert {node.emits for node in stream._env.graph} == {APPENDS, ANY_CHANGES}


# --- sinks ---------------------------------------------------------------------------------------------------------------------


def test_print_shows_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    stream = changes()
    stream.print("cdc")
    stream._env.from_collection([1]).print()
    run_inline(stream.filter(lambda _: False))
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(
        ["1", *(f"cdc> {row['op']} {rest}" for row, rest in zip(CDC, WITHOUT_OP, strict=True))]
    )


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
@pytest.mark.parametrize("partition_by", [None, "user", lambda r: r["user"][0]])
@pytest.mark.parametrize("columns", [False, True])
def test_files_keep_a_changelog_that_can_be_read_back(tmp_path: Path, format: Any, partition_by: Any, columns: bool) -> None:
    stream = changes()
    if columns:
        stream = stream.map_batches(lambda batch: batch, aligned=True)
    stream.sink_to(FileSink(str(tmp_path / "out"), format=format, kind_field="op", partition_by=partition_by))
    run_inline(stream)
    found = list(read_output(tmp_path / "out"))
    if partition_by is not None:
        found.sort(key=lambda row: row["user"])
    expected = CDC if partition_by is None else sorted(CDC, key=lambda row: row["user"])
    assert found == expected
    back = environment().from_source(FileSource(str(tmp_path / "out"))).as_changes("op")
    assert sorted(map(str, run_inline(back))) == sorted(map(str, run_inline(changes())))


@pytest.mark.parametrize(
    "options", [{"columns": ["user", "n"]}, {"schema": pa.schema([("user", pa.string()), ("n", pa.int64())])}]
)
@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_the_kind_is_beside_the_columns_that_a_file_sink_was_given(tmp_path: Path, options: Any, format: Any) -> None:
    stream = changes()
    stream.map(lambda r: (r["user"], r["n"])).sink_to(FileSink(str(tmp_path / "a"), format=format, kind_field="op", **options))
    stream.sink_to(FileSink(str(tmp_path / "b"), format=format, kind_field="op", **options))
    stream._env.from_collection([("zoe", 9)]).sink_to(FileSink(str(tmp_path / "c"), format=format, kind_field="op", **options))
    run_inline(stream)
    assert list(read_output(tmp_path / "a")) == list(read_output(tmp_path / "b")) == CDC
    assert list(read_output(tmp_path / "c")) == [{"user": "zoe", "n": 9, "op": "+I"}]


@pytest.mark.parametrize("options", [{"kind_field": ""}, {"kind_field": "op", "format": "text"}])
def test_a_file_sink_says_when_it_cannot_write_kinds(options: Any) -> None:
    with pytest.raises(ConfigError, match="A FileSink cannot write"):
        FileSink("out", **options)


def test_a_file_sink_does_not_overwrite_a_field(tmp_path: Path) -> None:
    stream = changes().map(lambda r: r)
    stream.sink_to(FileSink(str(tmp_path), kind_field="n"), name="out")
    with pytest.raises(SinkError, match="sink of step 'out' failed to write: ValueError: the records have a field 'n' already"):
        run_inline(stream)


def test_sqlite_holds_the_table_that_the_changes_describe(tmp_path: Path) -> None:
    rng = random.Random(3)
    rows, table = [], {}
    for _ in range(3000):
        user, n = f"u{rng.randrange(40)}", rng.randrange(1000)
        if user not in table:
            rows.append({"op": "+I", "user": user, "n": n})
            table[user] = n
        elif rng.random() < 0.3:
            rows.append({"op": "-D", "user": user, "n": table.pop(user)})
        else:
            rows += [{"op": "-U", "user": user, "n": table[user]}, {"op": "+U", "user": user, "n": n}]
            table[user] = n
    source = ScriptedSource([*map(Record, rows), End()], cut=170)
    stream = environment(storage=str(tmp_path / "job")).from_source(source).as_changes("op").key_by("user")
    stream.sink_to(SqliteSink(str(tmp_path / "t.db"), "t", ["user", "n"], key=["user"]))
    stream._env.execute()
    with sqlite3.connect(tmp_path / "t.db") as database:
        assert dict(database.execute("SELECT * FROM t")) == table


# --- keyed streams without a keyed step ----------------------------------------------------------------------------------------


def test_steps_without_state_take_keyed_streams(tmp_path: Path) -> None:
    """The exchange brings the records of a key together; the step has no use for the keys."""
    env = environment()
    keyed = env.from_collection(WITHOUT_OP).key_by("user")
    rows = sorted(map(str, WITHOUT_OP))
    sink = CollectSink()
    keyed.sink_to(sink)
    assert sorted(map(str, run_inline(keyed.map(dict).union(keyed)))) == sorted(rows + rows)
    assert sorted(map(str, sink.results())) == rows
    steps: list[Callable[[DataStream[Any]], DataStream[Any]]] = [
        lambda s: s.filter(lambda _: True),
        lambda s: s.flat_map(lambda r: [r]),
        lambda s: s.map_batches(lambda batch: batch),
    ]
    for step in steps:
        assert sorted(map(str, run_inline(step(environment().from_collection(WITHOUT_OP).key_by("user"))))) == rows


def test_expression_steps_keep_ticks() -> None:
    """What a step that sees order sees does not depend on an expression step before it."""

    def seen(between: Callable[[DataStream[Any]], DataStream[Any]]) -> list[Any]:
        rows = [{"user": "ann", "at": at} for at in (5, 1, 9, 30, 22, 31)]
        source = environment(parallelism=1).from_collection(rows, watermarks=Watermarks.bounded(seconds=0.005, timestamp="at"))
        return run_inline(between(source).key_by("user").process(_Watermarks()))

    expected = seen(lambda s: s.map(dict))
    assert len(set(expected)) > 2
    assert seen(lambda s: s.filter(col("at") > 0)) == expected
    assert seen(lambda s: s.select("user", "at")) == expected
    assert seen(lambda s: s.with_columns(at=col("at") + 0)) == expected


class _Watermarks(KeyedProcessFunction[str, Any, int]):
    def process(self, value: Any, ctx: Any) -> Iterator[int]:
        yield ctx.current_watermark


def test_columns_and_records_take_slices_with_kinds() -> None:
    data = pa.record_batch({"n": [1, 2, 3]})
    batches: list[Records | Columns] = [Records([1, 2, 3]), Columns(data, DICT_ROW)]
    for batch in batches:
        whole = batch.with_kinds(changes_of(0, 1, 2))
        assert [change.kind for change in changes_in(whole.slice(1, 3))] == ["-U", "+U"]
        assert [change.kind for change in changes_in(whole.take(changes_of(2, 0).astype("int64")))] == ["+U", "+I"]
