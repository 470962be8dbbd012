"""A program of many levels: one job an epoch, and how it is drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock import CollectSink, KeyedProcessFunction, OutputTag, StreamEnvironment, ValueState
from penstock.cli.app import app
from penstock.compile.explain import explain_data, explain_text
from penstock.compile.mermaid import _escaped, explain_mermaid
from penstock.executors.inline import InlineExecutor
from penstock.functions import BroadcastProcessFunction, KeyedCoProcessFunction
from penstock.state import BroadcastMapState

ODD = OutputTag[int]("odd")
ROUND = OutputTag[int]("round")


class Split(KeyedProcessFunction[int, int, int]):
    """Numbers on, odd ones also to the side."""

    seen = ValueState(int, 0)

    def process(self, value: int, ctx: Any) -> Iterator[int]:
        self.seen.update(self.seen.value + 1)
        if value % 2:
            ctx.output(ODD, value)
        yield value


class Met(KeyedCoProcessFunction[int, int, int, tuple[str, int]]):
    seen = ValueState(int, 0)

    def process1(self, value: int, ctx: Any) -> Iterator[tuple[str, int]]:
        self.seen.update(self.seen.value + 1)
        if value % 10 == 0:
            ctx.output(ROUND, value)
        yield "first", value

    def process2(self, value: int, ctx: Any) -> Iterator[tuple[str, int]]:
        self.seen.update(self.seen.value + 1)
        yield "second", value


class Named(BroadcastProcessFunction[tuple[str, int], str, tuple[str, int]]):
    names: BroadcastMapState[str, int] = BroadcastMapState(str, int)

    def process(self, value: tuple[str, int], ctx: Any) -> Iterator[tuple[str, int]]:
        yield value

    def process_broadcast(self, value: str, ctx: Any) -> None:
        self.names[value] = 1


def many_levels(env: StreamEnvironment) -> dict[str, CollectSink]:
    """Three sources, four exchanges in a row, side outputs at two levels, a union of levels, four sinks."""
    a = env.from_collection(range(40), name="a")
    b = env.from_collection(range(100, 140), name="b")
    names = env.from_collection(["x", "y"], name="names")
    first = a.key_by(lambda n: n % 7).process(Split(), name="first")
    second = first.union(b, name="both").key_by(lambda n: n % 5).process(Split(), name="second")
    met = second.key_by(lambda n: n % 3).connect(first.side_output(ODD).key_by(lambda n: n % 3)).process(Met(), name="met")
    named = met.rebalance().connect(names.broadcast()).process(Named(), name="named")
    levels = second.side_output(ODD).union(met.side_output(ROUND), a, name="levels")
    sinks = {name: CollectSink() for name in ("named", "levels", "odd", "round")}
    named.sink_to(sinks["named"], name="named-out")
    levels.sink_to(sinks["levels"], name="levels-out")
    first.side_output(ODD).sink_to(sinks["odd"], name="odd-out")
    met.side_output(ROUND).sink_to(sinks["round"], name="round-out")
    return sinks


class Counting(InlineExecutor):
    """How often it is asked to run an epoch: on Spark each is one job."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0

    def run(self, *arguments: Any, **options: Any) -> Any:
        self.runs += 1
        return super().run(*arguments, **options)


@pytest.mark.parametrize("records", [7, 1000])
def test_it_is_one_job_an_epoch_and_right(records: int) -> None:
    env = StreamEnvironment("many", executor="inline", parallelism=3, max_records_per_epoch=records)
    sinks, executor = many_levels(env), Counting()
    result = env.execute(executor=executor)
    assert executor.runs == result.epochs
    both = [*range(40), *range(100, 140)]
    odd = [n for n in range(40) if n % 2]
    rounds = [n for n in both if n % 10 == 0]
    assert Counter(sinks["odd"].results()) == Counter(odd)
    assert Counter(sinks["round"].results()) == Counter(rounds)
    assert Counter(sinks["levels"].results()) == Counter([n for n in both if n % 2] + rounds + [*range(40)])
    assert Counter(sinks["named"].results()) == Counter([("first", n) for n in both] + [("second", n) for n in odd])


def test_all_of_it_is_explained() -> None:
    env = StreamEnvironment("many", executor="inline", parallelism=3)
    many_levels(env)
    text, data = explain_text(env.graph, env.config), explain_data(env.graph, env.config)
    assert [stage["stage"] for stage in data["stages"]] == [0, 1, 2, 3, 4]
    assert "broadcast: names → " in text
    assert all(f"  {step['id']}: " in text for step in data["steps"])
    assert {state["scope"] for step in data["steps"] for state in step["states"]} == {"keyed", "broadcast"}
    assert "state names: broadcast map of str → int" in text


class Nothing(KeyedProcessFunction[Any, Any, Any]):
    count = ValueState(int, 0)

    def process(self, value: Any, ctx: Any) -> None: ...


def test_as_mermaid() -> None:
    env = StreamEnvironment("drawn", executor="inline")
    words = env.from_collection(["a"], name="words")
    counted = words.key_by(0).process(Nothing(), name="count")
    counted.side_output(ODD).print(name="out")
    assert explain_mermaid(env.graph, env.config) == (
        "flowchart TB\n"
        '  subgraph stage0["stage 0"]\n'
        '    s0(["words<br/>source collection of 1 values, 1 partition"])\n'
        "  end\n"
        '  subgraph stage1["stage 1"]\n'
        '    s1["count<br/>keyed process<br/>keeps count"]\n'
        '    s2[["out<br/>sink print"]]\n'
        "  end\n"
        '  s0 ==>|"key_by 0"| s1\n'
        '  s1 -->|"[odd]"| s2\n'
    )


def test_text_in_boxes_is_only_text() -> None:
    assert _escaped('key_by function <lambda> ("a&b.py":3) `x`') == (
        "key_by function &lt;lambda&gt; (&quot;a&amp;b.py&quot;:3) &#96;x&#96;"
    )


def test_the_command(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from penstock import StreamEnvironment\n"
        "env = StreamEnvironment('x')\n"
        "env.from_collection([1], name='in').print(name='out')\n"
        "env.execute()\n"
    )
    shown = CliRunner().invoke(app, ["explain", str(program), "--mermaid"])
    assert shown.output.startswith('flowchart TB\n  subgraph stage0["stage 0"]\n')
    assert "  s0 --> s1\n" in shown.output
