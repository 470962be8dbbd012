"""Patterns on streams: what the operator emits is what the matcher finds in the events of each key, in order of time, however
they come and whenever the state is saved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock import OutputTag, Pattern, SkipStrategy, StreamEnvironment, col
from penstock.cep.atoms import Event
from penstock.cep.compiling import compile_pattern
from penstock.cep.conditions import OfColumns, OfEvent
from penstock.cep.functions import PatternFunction
from penstock.cep.matching import Matcher, Matches, match_of
from penstock.cep.stages import Group, Stage
from penstock.ids import MAX_WATERMARK
from penstock.testing.harness import OperatorHarness
from tests.cep.patterns import LETTERS, Named, patterns

KEYS = ("k1", "k2", "k3")
Row = dict[str, Any]
Found = tuple[str, int, tuple[tuple[str, tuple[int, ...]], ...]]


class Numbers(PatternFunction[Row, Any]):
    """By stage, the numbers of the events."""

    def process_match(self, match: dict[str, list[Row]], ctx: Any) -> list[Any]:
        return [(ctx.key, ctx.timestamp, shown(match))]

    def process_timed_out(self, match: dict[str, list[Row]], ctx: Any) -> None:
        ctx.output(OutputTag[Any]("timed out"), (ctx.key, ctx.timestamp, shown(match)))


def shown(match: dict[str, list[Row]]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((stage, tuple(row["id"] for row in rows)) for stage, rows in match.items())


def harness(pattern: Pattern, parallelism: int = 1, **options: Any) -> OperatorHarness:
    env = StreamEnvironment("harness")
    nothing: list[Row] = []
    made = env.from_collection(nothing).key_by("key").pattern(pattern, **options).process(Numbers())
    definition = env.graph.nodes[made._step].definition
    return OperatorHarness(definition, key=lambda row: row["key"], parallelism=parallelism)


def over_columns(pattern: Pattern) -> Pattern:
    """The same with its conditions as expressions."""

    def changed(stage: Stage) -> Stage:
        if isinstance(stage, Group):
            stage = replace(stage, stages=tuple(map(changed, stage.stages)))
        return replace(stage, where=_column(stage.where), until=_column(stage.until))

    return replace(pattern, stages=tuple(map(changed, pattern.stages)))


def _column(condition: Any) -> Any:
    if not isinstance(condition, OfEvent):
        return condition
    assert isinstance(condition.function, Named)
    return OfColumns(col("name").is_in(list(condition.function.letters)).node)


def expected(pattern: Pattern, rows: list[Row]) -> tuple[list[Found], list[Found]]:
    """Of each key in turn; then by time and key."""
    found: dict[bool, list[Found]] = {False: [], True: []}
    for key in KEYS:
        matcher, matches = Matcher(compile_pattern(pattern)), Matches()
        mine = sorted((row for row in rows if row["key"] == key), key=lambda row: row["at"])
        results = []
        for number, row in enumerate(mine):
            results += matcher.expire(matches, row["at"])
            results += matcher.take(matches, Event(row["at"], number, row))
        results += matcher.expire(matches, MAX_WATERMARK)
        for one in results:
            found[one.timed_out].append((key, one.time, shown(match_of(one.last))))
    return tuple(sorted(found[kind], key=lambda one: (one[1], one[0])) for kind in (False, True))  # type: ignore[return-value]


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Rows out of order by at most 4, watermarks, and saved states, restored at some parallelism."""
    steps: list[tuple[str, Any]] = []
    newest, watermark = 0, -1
    for number in range(draw(st.integers(0, 24))):
        newest += draw(st.integers(0, 2))
        at = max(draw(st.integers(newest - 4, newest)), watermark + 1)
        row = {"id": number, "key": draw(st.sampled_from(KEYS)), "name": draw(st.sampled_from(LETTERS)), "at": at}
        steps.append(("row", row))
        what = draw(st.integers(0, 7))
        if what < 3 and newest - 5 > watermark:
            watermark = newest - 5
            steps.append(("watermark", watermark))
        elif what == 3:
            steps.append(("restore", draw(st.integers(1, 3))))
        elif what == 4:
            steps.append(("snapshot", None))
    return steps


def drive(operator: OperatorHarness, steps: list[tuple[str, Any]]) -> None:
    batch: list[tuple[Row, int | None]] = []
    for what, given_value in [*steps, ("watermark", MAX_WATERMARK)]:
        if what == "row":
            batch.append((given_value, given_value["at"]))
            continue
        operator.send_all(batch)
        batch = []
        if what == "watermark":
            operator.watermark(given_value)
        elif what == "restore":
            operator.restore(operator.snapshot(), parallelism=given_value)
        else:
            operator.snapshot()


@given(patterns(), streams(), st.booleans(), st.sampled_from(["no_skip", "to_next", "past_last_event"]))
def test_results_do_not_depend_on_how_events_come(
    pattern: Pattern, steps: list[tuple[str, Any]], columns: bool, skip: str
) -> None:
    pattern = pattern.skipping(getattr(SkipStrategy, skip)())
    given_pattern = over_columns(pattern) if columns else pattern
    matches, timed_out = expected(pattern, [row for what, row in steps if what == "row"])
    with harness(given_pattern) as operator:
        drive(operator, steps)
        assert by_time(operator.take()) == matches
        assert by_time(operator.side("timed out")) == timed_out


def by_time(emitted: list[Any]) -> list[Found]:
    """Partitions are not in an order; each of them is."""
    found = [value for value, _ in emitted]
    assert all(time == value[1] for value, time in emitted)
    return sorted(found, key=lambda one: (one[1], one[0]))


def test_nothing_is_left_of_a_key_whose_matches_are_over() -> None:
    pattern = (
        Pattern.begin("a").where(Named("a")).followed_by("b").where(Named("b")).one_or_more().next("c").where(Named("c"))
    ).within(seconds=0.01)
    with harness(pattern) as operator:
        rows = [("a", 1), ("b", 2), ("b", 3), ("c", 4), ("a", 6)]
        operator.send_all([({"id": n, "key": "k1", "name": name, "at": at}, at) for n, (name, at) in enumerate(rows)])
        assert operator.state_entries() > 0  # they wait for their time
        operator.watermark(4)
        assert len(operator.take()) == 1
        assert operator.state_entries() > 0
        assert operator.event_timers() == 1
        operator.watermark(100)
        assert operator.side("timed out")[-1] == (("k1", 16, (("a", (4,)),)), 16)
        assert (operator.state_entries(), operator.event_timers()) == (0, 0)


def test_of_events_that_cannot_begin_a_match_nothing_is_kept() -> None:
    pattern = Pattern.begin("a").where(col("name") == "a").next("b").where(col("name") == "b")
    with harness(pattern) as operator:
        operator.send_all([({"id": n, "key": f"k{n}", "name": "b", "at": n}, n) for n in range(50)])
        operator.watermark(1000)
        assert (operator.state_entries(), operator.event_timers()) == (0, 0)


def late_rows(operator: OperatorHarness) -> list[int]:
    return [row["id"] for row, _ in operator.side("late")]


def test_late_events_go_to_their_side_output() -> None:
    pattern = Pattern.begin("a").where(Named("a"))
    with harness(pattern, late=OutputTag[Row]("late")) as operator:
        operator.watermark(10)
        for number, at in enumerate((10, 11)):
            operator.send({"id": number, "key": "k1", "name": "a", "at": at}, at)
        operator.watermark(20)
        assert late_rows(operator) == [0]
        assert [value[2] for value, _ in operator.take()] == [(("a", (1,)),)]


def ties_by(name: str) -> Callable[[Row], Any]:
    return lambda row: row[name]


def test_events_of_one_time_are_taken_as_ties_says() -> None:
    pattern = Pattern.begin("a").where(Named("a")).next("b").where(Named("b"))
    rows = [{"id": 0, "key": "k1", "name": "b", "at": 5}, {"id": 1, "key": "k1", "name": "a", "at": 5}]
    for ties, found in ((None, 0), (ties_by("name"), 1)):
        with harness(pattern, ties=ties) as operator:
            operator.send_all([(row, 5) for row in rows])
            operator.watermark(10)
            assert len(operator.take()) == found


def test_in_processing_time_events_are_taken_as_they_come() -> None:
    pattern = Pattern.begin("a").where(Named("a")).next("b").where(Named("b")).within(seconds=0.01)
    with harness(pattern, time="processing") as operator:
        for now, name in ((5, "a"), (9, "b"), (20, "a"), (30, "b")):
            operator.processing_time(now)
            operator.restore(operator.snapshot())
            operator.send({"id": now, "key": "k1", "name": name})
        assert [(value[0], value[2]) for value, _ in operator.take()] == [("k1", (("a", (5,)), ("b", (9,))))]
        assert [value[2] for value, _ in operator.side("timed out")] == [(("a", (20,)),)]
        assert (operator.state_entries(), operator.processing_timers()) == (0, 0)
