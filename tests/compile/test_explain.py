"""What explain says, compared with golden files. `UPDATE_GOLDEN=1` writes them anew."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    CountTrigger,
    FileSink,
    GeneratorSource,
    KeyedContext,
    KeyedProcessFunction,
    ListState,
    MapState,
    OutputTag,
    SessionWindows,
    SlidingWindows,
    StreamEnvironment,
    Ttl,
    TumblingWindows,
    ValueState,
    Watermarks,
    aggregates,
    avg,
    count,
)
from penstock.aggregates import top_n
from penstock.compile.explain import explain_data, explain_text
from penstock.state.encoding.schemas import schema_text
from penstock.windows import CountEvictor

GOLDEN = Path(__file__).parents[1] / "golden"


@dataclass(frozen=True)
class Reading:
    room: str
    time: int
    celsius: float | None


class Watch(KeyedProcessFunction[str, Reading, str]):
    last: ValueState[Reading] = ValueState(Reading, ttl=timedelta(hours=1))
    seen: MapState[str, int] = MapState(str, int, ttl=Ttl(timedelta(minutes=5), time="event", refresh="read"))
    anything: ListState[Any] = ListState()

    def process(self, value: Reading, ctx: KeyedContext[str]) -> None: ...


def reading(n: int) -> Reading:
    return Reading("kitchen", n, None)


def rooms() -> StreamEnvironment:
    """Everything explain has something to say about."""
    env = StreamEnvironment("rooms", parallelism=2, executor="inline")
    readings = env.from_source(
        GeneratorSource(reading, rate=10),
        watermarks=Watermarks.bounded(seconds=5, timestamp="time", idle=timedelta(seconds=1)),
        name="readings",
    )
    watched = readings.key_by("room").process(Watch(), name="watch", errors="dead_letter")
    watched.sink_to(FileSink("/out/watched"), name="out")
    watched.dead_letters().print(name="rejected")
    watched.side_output(OutputTag("late")).rebalance().map(str).print()
    readings.filter(lambda r: r.celsius is not None).key_by(lambda r: r.room).reduce(max).print("hottest")
    return env


def counts() -> StreamEnvironment:
    env = StreamEnvironment("counts", parallelism=1, guarantee="at-least-once")
    words = env.from_collection(["a", "b"], name="words").map(lambda word: (word, 1))
    words.key_by(0).sum(1).print()
    return env


def windows() -> StreamEnvironment:
    """Two windows that are computed over columns together, and each reason not to."""
    env = StreamEnvironment("windows", parallelism=2, executor="inline")
    readings = env.from_source(
        GeneratorSource(reading, count=10), watermarks=Watermarks.bounded(seconds=5, timestamp="time"), name="readings"
    )
    keyed, late = readings.key_by("room"), OutputTag[Reading]("late")
    minute, minutes = TumblingWindows(minutes=1), SlidingWindows(timedelta(minutes=2), timedelta(seconds=90))
    mean = avg("celsius")
    keyed.window(minute, late=late).aggregate(mean, count(), name="columns").print()
    keyed.window(minutes, allowed_lateness=timedelta(hours=1)).aggregate(mean, name="more-columns").print()
    keyed.window(minute).aggregate(mean, name="told-not-to", columnar=False).print()
    keyed.window(minute).aggregate(top_n(3, "celsius"), name="not-over-columns").print()
    keyed.window(minute).aggregate(warmest=aggregates.max(lambda r: r.celsius), name="by-function").print()
    keyed.window(SessionWindows(timedelta(seconds=30))).aggregate(mean, name="sessions").print()
    keyed.window(minute, trigger=CountTrigger(5)).aggregate(mean, name="trigger").print()
    keyed.window(minute, evictor=CountEvictor(5)).reduce(max, name="evictor").print()
    return env


def settled(text: str) -> str:
    """The same on every machine: paths end at the folder of this file, lines do not matter."""
    text = text.replace(str(Path(__file__).parents[2]), "…")
    return "\n".join(_without_lines(line) for line in text.splitlines()) + "\n"


def _without_lines(line: str) -> str:
    head, mark, tail = line.partition("test_explain.py:")
    return head + mark + tail.lstrip("0123456789") if mark else line


def golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("program", [rooms, counts, windows], ids=["rooms", "counts", "windows"])
def test_as_text(program: Any) -> None:
    env = program()
    golden(f"explain-{program.__name__}.txt", settled(explain_text(env.graph, env.config)))


@pytest.mark.parametrize("program", [rooms, counts, windows], ids=["rooms", "counts", "windows"])
def test_as_json(program: Any) -> None:
    env = program()
    golden(f"explain-{program.__name__}.json", settled(json.dumps(explain_data(env.graph, env.config), indent=2)))


def test_the_environment_explains_itself() -> None:
    env = rooms()
    assert env.explain() == explain_text(env.graph, env.config)


def test_derived_ids_warn_only_where_state_is_kept() -> None:
    env = counts()
    warnings = explain_data(env.graph, env.config)["warnings"]
    assert len(warnings) == 1
    assert "'sum-1'" in warnings[0]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("int", "int"),
        ({"union": ["none", "str"]}, "none | str"),
        ({"dict": ["str", {"list": "int"}]}, "dict[str, list[int]]"),
        ({"record": "app.Visit", "form": "map", "fields": [{"name": "at", "type": "int", "required": True}]}, "Visit(at: int)"),
        ({"literal": ["a", "b"]}, "literal[['a', 'b']]"),
    ],
)
def test_schemas_as_text(schema: Any, text: str) -> None:
    assert schema_text(schema) == text
