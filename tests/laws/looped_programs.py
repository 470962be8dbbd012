"""Programs with loops, and what they give by other means."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from penstock import DataStream, KeyedProcessFunction, OutputTag, StreamEnvironment, ValueState
from penstock.connectors import CollectionSource
from penstock.timing import Watermarks

Edge = tuple[int, int]
FOUND = OutputTag[dict[str, Any]]("found")
START = 0


class Reach(KeyedProcessFunction[int, dict[str, Any], dict[str, Any]]):
    """Of each node whether it is reached, and where its edges lead. A node that is reached says so to its neighbours."""

    reached: ValueState[bool] = ValueState(bool)
    to: ValueState[list[int]] = ValueState(list[int])

    def process(self, value: dict[str, Any], ctx: Any) -> Iterator[dict[str, Any]]:
        node, to = value["node"], self.to.value or []
        if value["to"] is not None:
            self.to.update([*to, value["to"]])
            if self.reached.value:
                yield {"node": value["to"], "to": None}
        elif not self.reached.value:
            self.reached.update(True)
            ctx.output(FOUND, {"node": node, "late": ctx.current_watermark >= ctx.timestamp_ms})
            for other in to:
                yield {"node": other, "to": None}


def graph_input(env: StreamEnvironment, edges: Iterable[Edge], parts: int = 1) -> DataStream[dict[str, Any]]:
    """The edges one after another, and the node to start from somewhere among them."""
    rows: list[dict[str, Any]] = [{"node": a, "to": b} for a, b in edges]
    rows.insert(len(rows) // 2, {"node": START, "to": None})
    timed = [{**row, "time": 1_000 * number} for number, row in enumerate(rows)]
    source = CollectionSource(timed, partitions=parts)
    marks: Watermarks[Any] = Watermarks.monotonous(timestamp="time")
    return env.from_source(source, watermarks=marks, name="edges").map(lambda row: {"node": row["node"], "to": row["to"]})


def reachability(env: StreamEnvironment, edges: Iterable[Edge], *, turns: int = 1_000, parts: int = 1) -> DataStream[Any]:
    """The nodes that can be reached, each once."""
    loop = graph_input(env, edges, parts).iterate(turns=turns, name="spread")
    messages = loop.key_by("node").process(Reach(), name="reach")
    loop.close_with(messages)
    return messages.side_output(FOUND)


def reachable(edges: Iterable[Edge]) -> list[int]:
    to: dict[int, list[int]] = {}
    for a, b in edges:
        to.setdefault(a, []).append(b)
    found, todo = {START}, deque([START])
    while todo:
        for other in to.get(todo.popleft(), []):
            if other not in found:
                found.add(other)
                todo.append(other)
    return sorted(found)


def step_of_collatz(row: tuple[int, int, int]) -> tuple[int, int, int]:
    number, now, steps = row
    return row if now == 1 else (number, now // 2 if now % 2 == 0 else 3 * now + 1, steps + 1)


def steps_to_one(number: int) -> int:
    steps, row = 0, (number, number, 0)
    while row[1] != 1:
        row = step_of_collatz(row)
        steps += 1
    return steps
