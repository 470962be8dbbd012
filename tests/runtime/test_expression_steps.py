"""Steps that compute with expressions: select, filter, with_columns, on columns and on Python records."""

# ruff: noqa: DTZ001 - times without a zone are what is tested

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    CollectSink,
    FileSource,
    ProcessFunction,
    StreamEnvironment,
    TumblingWindows,
    Watermarks,
    col,
    count,
    lit,
    when,
)
from penstock.compile.explain import explain_data
from penstock.compile.programs import plan_hash
from penstock.compile.rewrites import rewrite
from penstock.config import NO_RESTART
from penstock.errors import PlanError, UserCodeError
from penstock.expressions import coalesce
from penstock.ids import StepId
from penstock.plan.nodes import Input
from penstock.plan.schemas import schema_of
from penstock.runtime.operators.expressions import Filter
from penstock.testing import End, Record, ScriptedSource, Watermark, run_inline, scripted_watermarks
from tests.plan.expressions.random_expressions import ROWS, TRUTH_EXPRESSIONS, RowError, naive

SALES: list[dict[str, Any]] = [
    {"user": "a", "price": 1.5, "n": 2, "tags": ["x"], "at": {"city": "Ulm"}},
    {"user": None, "price": 4.0, "n": 0, "tags": [], "at": None},
    {"user": "b", "price": None, "n": 3, "tags": None, "at": {"city": "Bonn"}},
]


def environment(**settings: Any) -> StreamEnvironment:
    return StreamEnvironment("expressions", executor="inline", parallelism=2, restart=NO_RESTART, **settings)


@pytest.fixture(params=["dicts", "parquet", "json"])
def sales(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """The sales as a stream, from each kind of source."""
    env = environment()
    if request.param == "dicts":
        return env.from_collection(SALES)
    if request.param == "parquet":
        pq.write_table(pa.Table.from_pylist(SALES), tmp_path / "sales.parquet")
        return env.from_source(FileSource(str(tmp_path)))
    lines = "".join(f"{line}\n" for line in map(json.dumps, SALES))
    (tmp_path / "sales.json").write_text(lines)
    return env.from_source(FileSource(str(tmp_path)))


def test_select(sales: Any) -> None:
    made = sales.select("user", total=col("price") * col("n"), city=col("at").field("city"), first=col("tags").element(0))
    assert run_inline(made) == [
        {"user": "a", "total": 3.0, "city": "Ulm", "first": "x"},
        {"user": None, "total": 0.0, "city": None, "first": None},
        {"user": "b", "total": None, "city": "Bonn", "first": None},
    ]


def test_select_passes_nested_values_as_they_are(sales: Any) -> None:
    assert run_inline(sales.select("tags", "at")) == [{"tags": r["tags"], "at": r["at"]} for r in SALES]


def test_filter(sales: Any) -> None:
    assert run_inline(sales.filter((col("price") > 1) & (col("n") > 0))) == SALES[:1]


def test_filter_still_takes_functions(sales: Any) -> None:
    assert run_inline(sales.filter(lambda r: r["n"] == 0)) == SALES[1:2]


def test_with_columns(sales: Any) -> None:
    made = sales.with_columns(col("user").upper().alias("user"), pricey=coalesce(col("price") > 2, False))
    expected = [{**r, "user": r["user"] and r["user"].upper(), "pricey": (r["price"] or 0) > 2} for r in SALES]
    assert run_inline(made) == expected


@dataclass
class Sale:
    user: str
    n: int

    @property
    def double(self) -> int:
        return 2 * self.n


class Pair(NamedTuple):
    user: str
    n: int


@pytest.mark.parametrize("kind", [Sale, Pair])
def test_records_of_classes_stay_what_they_are_when_filtered(kind: Callable[..., Any]) -> None:
    values = [kind("a", 1), kind("b", 5)]
    assert run_inline(environment().from_collection(values).filter(col("n") > 2)) == values[1:]
    assert run_inline(environment().from_collection(values).with_columns(n=col("n") + 1)) == [
        {"user": "a", "n": 2},
        {"user": "b", "n": 6},
    ]


def test_attributes_tuples_and_plain_values() -> None:
    assert run_inline(environment().from_collection([Sale("a", 1), Sale("b", 5)]).select("double")) == [
        {"double": 2},
        {"double": 10},
    ]
    assert run_inline(environment().from_collection([("a", 1), ("b", 5)]).filter(col("f1") > 2)) == [("b", 5)]
    assert run_inline(environment().from_collection([3, None, 7]).filter(col("value") > 4)) == [7]


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.datetimes(min_value=datetime(1700, 1, 1), max_value=datetime(2200, 1, 1)),
    st.datetimes(min_value=datetime(1700, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 3)),
)


@given(st.lists(st.fixed_dictionaries({"v": VALUES, "n": st.integers(0, 9)}), min_size=1, max_size=8), st.integers(1, 4))
def test_values_that_pass_are_what_they_were(rows: list[dict[str, Any]], cut: int) -> None:
    script = [Record(row, 10) for row in rows] + [End()]
    stream = environment().from_source(ScriptedSource(script, cut=cut), watermarks=scripted_watermarks())
    made = run_inline(stream.select("v", more=col("n") + 1).with_columns(n=col("more") - 1).select("v", "n"))
    assert [(type(r["v"]), r) for r in made] == [(type(r["v"]), r) for r in rows]


@given(TRUTH_EXPRESSIONS, ROWS, st.integers(1, 5))
def test_what_is_skipped_does_not_depend_on_the_cut(condition: Any, rows: list[dict[str, Any]], cut: int) -> None:
    expected = []
    for number, row in enumerate(rows):
        try:
            if naive(condition.node, row) is True:
                expected.append(number)
        except RowError:
            pass
    numbered = [Record({**row, "number": number}, 10) for number, row in enumerate(rows)]
    stream = environment().from_source(ScriptedSource([*numbered, End()], cut=cut), watermarks=scripted_watermarks())
    step = stream.filter(condition, name="step", errors="dead_letter")
    kept = run_inline(step.select("number"))
    assert [row["number"] for row in kept] == expected


def test_a_batch_of_nulls_is_computed_as_its_rows_are_among_others() -> None:
    """A column of which a batch has nulls only is of no type: what is made of it may still be a text."""
    condition = ~(lit("").contains("a") & (col("s") + col("s")).contains("a"))
    for rows in ([{"s": None}], [{"s": None}, {"s": "a"}]):
        assert run_inline(environment().from_collection(rows).filter(condition)) == rows


def test_timestamps_travel_with_their_rows() -> None:
    rows = [Record({"n": n, "t": 10 * n}, 10 * n) for n in range(10)]
    stream = environment().from_source(ScriptedSource([*rows, Watermark(95), End()]), watermarks=scripted_watermarks())
    made = stream.filter(col("n") % 3 == 0).select("t", odd=col("n") % 2 == 1).with_columns(u=col("t") + 1)

    class Check(ProcessFunction[Any, Any]):
        def process(self, value: Any, ctx: Any) -> Any:
            yield value["t"], ctx.timestamp

    assert run_inline(made.process(Check())) == [(0, 0), (30, 30), (60, 60), (90, 90)]


def test_after_key_by_it_is_a_step_like_others() -> None:
    stream = environment().from_collection(SALES).key_by("n")
    assert sorted(r["d"] for r in run_inline(stream.select(d=col("n") * 2))) == [0, 4, 6]
    stream = environment().from_collection(SALES).key_by("n")
    assert len(run_inline(stream.filter(col("n") > 0))) == 2


def test_windows_over_selected_columns() -> None:
    rows = [Record({"k": "ab"[n % 2], "n": n}, n) for n in range(10)]
    stream = environment().from_source(ScriptedSource([*rows, End()]), watermarks=scripted_watermarks())
    found = run_inline(stream.select(key=col("k").upper()).key_by("key").window(TumblingWindows(seconds=1)).aggregate(count()))
    assert sorted((r["key"], r["count"]) for r in found) == [("A", 5), ("B", 5)]


# --- errors when the program is built ------------------------------------------------------------------------------------------


def refused(build: Callable[[Any], Any], stream: Any) -> str:
    with pytest.raises(PlanError) as raised:
        build(stream)
    return str(raised.value)


def test_a_misspelt_column_is_found_when_the_program_is_built(sales: Any) -> None:
    if schema_of(sales._env.graph, sales._input(), {}) is None:
        pytest.skip("JSON without a schema: nobody knows the columns before they are read")
    text = refused(lambda s: s.filter(col("pirce") > 1, name="big"), sales)
    assert text.startswith("step 'big': there is no column 'pirce'")
    assert "expression: pirce > 1" in text
    assert re.search(r"at: .*test_expression_steps\.py:\d+", text)
    assert "columns: user, price, n, tags, at" in text
    assert "hint: did you mean price?" in text
    assert StepId("big") not in sales._env.graph.nodes


BUILDS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda s: s.filter(col("n")), "filter needs a condition, and this is of type int64"),
    (lambda s: s.filter(col("user") > 1), "string and int64 cannot be compared"),
    (lambda s: s.select(), "no columns were named"),
    (lambda s: s.select("user", user=lit(1)), "two columns are called 'user'"),
    (lambda s: s.select(col("n") + 1), "has no name"),
    (lambda s: s.select(x="user"), "a column or a text"),
    (lambda s: s.select(1), "1 is not a column"),
    (lambda s: s.select("user", name=col("n")), "name= is the name of the step"),
    (lambda s: s.select(x=when(col("n") > 1).then(1)), "a choice has no end"),
    (lambda s: s.select("user", errors="never"), "errors='never'"),
    (lambda s: s.select("user").key_by("n"), "key_by('n'): the records of step 'select-1' have no such column"),
    (lambda s: s.select("user").filter(lambda r: True).key_by("usr"), "did you mean user"),
    (lambda s: s.with_columns(m=col("n")).select("o"), "there is no column 'o'"),
    (lambda s: s.map(lambda r: r).select("user").select("n"), "there is no column 'n'"),
]


@pytest.mark.parametrize(("build", "message"), BUILDS, ids=[case[1] for case in BUILDS])
def test_refused_when_built(build: Callable[[Any], Any], message: str) -> None:
    assert message in refused(build, environment().from_collection(SALES))


# --- errors of rows --------------------------------------------------------------------------------------------------------


def test_after_a_map_columns_are_checked_at_run_time() -> None:
    stream = environment().from_collection(SALES).map(lambda r: r)
    with pytest.raises(PlanError) as raised:
        run_inline(stream.filter(col("pirce") > 1, name="big"))
    text = str(raised.value)
    assert text.startswith("step 'big': there is no column 'pirce'")
    assert "columns: user, price, n, tags, at" in text
    assert "did you mean price?" in text


def test_records_of_nulls_stay_python_values() -> None:
    stream = environment().from_collection([{"n": None}, {"n": None}]).select("n", m=col("n").is_null())
    assert run_inline(stream) == [{"n": None, "m": True}] * 2


def test_a_missing_column_of_columns(tmp_path: Path) -> None:
    stream: Any = environment().from_collection(SALES).map_batches(lambda batch: batch.select(["n"]))
    with pytest.raises(PlanError, match="step 'big': there is no column 'pirce'"):
        run_inline(stream.filter(col("pirce") > 1, name="big", errors="skip"))


def test_the_record_that_fails_is_named(sales: Any) -> None:
    with pytest.raises(UserCodeError) as raised:
        run_inline(sales.select(each=col("price") / col("n"), name="each"))
    text = str(raised.value)
    assert text.startswith("step 'each': each = price / n cannot be computed: divide by zero")
    assert "'n': 0" in text
    assert re.search(r"at: .*test_expression_steps\.py:\d+", text)


def test_rows_that_fail_are_skipped_or_set_aside(sales: Any) -> None:
    step = sales.select("n", each=12 // col("n"), name="each", errors="dead_letter")
    letters = CollectSink()
    step.dead_letters().sink_to(letters)
    assert run_inline(step) == [{"n": 2, "each": 6}, {"n": 3, "each": 4}]
    (letter,) = letters.results()
    assert letter.record == SALES[1]
    assert letter.error == "ValueError: divide by zero"
    assert letter.function.startswith("each = 12 // n (")


def test_records_without_the_field_are_skipped_one_by_one() -> None:
    rows: list[Any] = [{"n": 1}, {"m": 1}, {"n": "x"}, {"n": 2.5}, {"n": True}, {"n": 1 << 70}, {"n": None}]
    for cut in (1, 3, None):
        script = [Record(row, 1) for row in rows] + [End()]
        stream: Any = environment().from_source(ScriptedSource(script, cut=cut), watermarks=scripted_watermarks())
        assert run_inline(stream.select(d=col("n") * 2, errors="skip")) == [{"d": 2}, {"d": 5.0}, {"d": None}]


# --- plans -----------------------------------------------------------------------------------------------------------------


def test_the_plan_s_hash_is_that_of_the_expressions() -> None:
    def program(limit: int) -> Any:
        env = environment()
        env.from_collection(SALES).filter(col("n") > limit).select("n").print()
        return env.graph

    assert plan_hash(program(1)) == plan_hash(program(1))
    assert plan_hash(program(1)) != plan_hash(program(2))
    for node in program(1):
        again = pickle.loads(pickle.dumps(node.definition))
        if isinstance(again, Filter):
            assert again == node.definition


def test_what_plans_know_of_streams() -> None:
    env = environment()
    source = env.from_collection(SALES)

    def known(stream: Any) -> Any:
        found = schema_of(env.graph, Input(step=stream._step, tag=stream._tag), {})
        return None if found is None else {name: str(kind) for name, kind in found.fields().items()}

    columns = {"user": "string", "price": "double", "n": "int64", "tags": "list<item: string>", "at": "struct<city: string>"}
    assert known(source) == columns
    assert known(source.filter(lambda r: True)) == columns
    assert known(source.map(lambda r: r)) is None
    assert known(source.map(lambda r: r).select("n", m=col("n") > 1)) == {"n": "None", "m": "bool"}
    assert known(source.with_columns(n=col("n") / 2, m=col("user").length())) == {**columns, "n": "double", "m": "int64"}
    assert known(source.union(source.filter(col("n") > 1))) == columns
    assert known(source.map_batches(lambda b: b, schema=Sale)) == {"user": "string", "n": "int64"}
    assert known(source.key_by("user").sum("n")) == {**columns, "n": "None"}
    windows = source.key_by("user").window(TumblingWindows(seconds=1)).aggregate(count())
    assert known(windows) == {"user": "string", "window_start": "None", "window_end": "None", "count": "None"}


def read_columns(env: StreamEnvironment, step: str = "in") -> Any:
    return rewrite(env.graph).nodes[StepId(step)].definition.source.columns  # type: ignore[attr-defined]


PRUNED: list[tuple[Callable[[Any], Any], Any]] = [
    (lambda s: s.select("user"), ("user",)),
    (lambda s: s.filter(col("n") > 1), None),
    (lambda s: s.filter(col("n") > 1).select("user"), ("n", "user")),
    (lambda s: s.with_columns(m=col("n") + 1), None),
    (lambda s: s.with_columns(m=col("n") + 1, k=col("price")).select("user", "m"), ("n", "price", "user")),
    (lambda s: s.rebalance().select("user"), ("user",)),
    (lambda s: s.key_by("n").select("user"), ("n", "user")),
    (lambda s: s.key_by(lambda r: r["n"]).select("user"), None),
    (lambda s: s.filter(lambda r: True).select("user"), None),
    (lambda s: s.select("user", errors="dead_letter"), None),
    (lambda s: s.union(s.filter(col("n") > 1)).select("user"), ("n", "user")),
    (lambda s: s.filter(col("n") > 1).map_batches(lambda b: b, columns=["price"]), ("n", "price")),
    (lambda s: s.select(one=lit(1)), None),
]


@pytest.mark.parametrize(("build", "columns"), PRUNED, ids=[str(number) for number in range(len(PRUNED))])
def test_sources_read_what_is_used(build: Callable[[Any], Any], columns: Any, tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(SALES), tmp_path / "sales.parquet")
    env = environment()
    build(env.from_source(FileSource(str(tmp_path)), name="in")).print()
    assert read_columns(env) == columns
    reads = explain_data(env.graph, env.config)["steps"][0]["source"]["columns"]
    assert reads == (None if columns is None else list(columns))


def test_the_column_of_the_timestamps_is_read(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": [1, 2], "n": [1, 2], "x": [0, 0]}), tmp_path / "rows.parquet")
    env = environment()
    times = Watermarks[Any].monotonous(timestamp="t")
    made = env.from_source(FileSource(str(tmp_path)), watermarks=times, name="in").select("n")
    assert run_inline(made) == [{"n": 1}, {"n": 2}]
    assert read_columns(env) == ("n", "t")


def test_pruning_json_does_not_hide_that_a_field_is_missing(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text('{"n": 1, "x": 1}\n{"x": 2}\n')
    made = environment().from_source(FileSource(str(tmp_path)), name="in").select(d=col("n") + 1, name="d")
    with pytest.raises(PlanError, match="step 'd': there is no column 'n'"):
        run_inline(made)


def test_explain_shows_expressions() -> None:
    env = environment()
    env.from_collection(SALES).filter(col("n") > 1).select("user", total=col("price") * col("n")).print()
    text = env.explain()
    assert re.search(r"keeps n > 1 \(.*test_expression_steps\.py:\d+\)", text)
    assert re.search(r"columns user, total = price \* n \(.*test_expression_steps\.py:\d+\)", text)
