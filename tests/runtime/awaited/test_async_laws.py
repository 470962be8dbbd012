"""An async step gives what a plain one gives: in any order of answers, in all cuts, with failures, after crashes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock import KeyedProcessFunction, ProcessFunction, RestartPolicy, StreamEnvironment, ValueState
from penstock.config import Retry
from penstock.testing import (
    CollectSink,
    Crash,
    End,
    Record,
    ScriptedSource,
    Watermark,
    execute_inline,
    run_inline,
    scripted_watermarks,
)
from tests.runtime.awaited.services import Query, Service

QUERIES = st.builds(Query, st.integers(0, 30), st.integers(0, 4), st.sampled_from([0, 0, 0, 1, 2, None]))
RETRY = Retry(attempts=2, first_delay=0)


@st.composite
def scripts(draw: st.DrawFn) -> list[Any]:
    """A partition's records, watermarks and crashes."""
    items: list[Any] = []
    time, number = 0, 0
    for kind in draw(st.lists(st.sampled_from(["record", "record", "record", "watermark", "crash"]), max_size=14)):
        if kind == "record":
            query = replace(draw(QUERIES), number=number)
            number += 1
            items.append(Record(query, time + draw(st.integers(-3, 5))))
        elif kind == "watermark":
            time += draw(st.integers(0, 4))
            items.append(Watermark(time))
        elif items and not any(isinstance(item, Crash) for item in items):
            items.append(Crash())
    return [*items, End()]


class Seen(ProcessFunction[int, Any]):
    def process(self, value: int, ctx: Any) -> Iterator[Any]:
        yield value, ctx.timestamp, ctx.current_watermark


class Running(KeyedProcessFunction[int, int, Any]):
    """Sees order: what it emits depends on the records and timers before."""

    last = ValueState(int, default=-1)

    def process(self, value: int, ctx: Any) -> Iterator[Any]:
        yield "after", self.last.value, value
        self.last.update(value)
        ctx.timers.register_event_time(ctx.timestamp + 2)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer", timestamp, self.last.value


def run(parts: list[list[Any]], cut: int | None, parallelism: int, step: Any, then: Any, *, crashes: bool = True) -> list[Any]:
    given_parts = [
        [
            replace(item, value=replace(item.value, number=3 * item.value.number + number)) if isinstance(item, Record) else item
            for item in part
            if crashes or not isinstance(item, Crash)
        ]
        for number, part in enumerate(parts)
    ]
    env = StreamEnvironment("asks", parallelism=parallelism, restart=RestartPolicy(attempts=9, first_delay=0))
    stream = env.from_source(ScriptedSource.of(*given_parts, cut=cut), watermarks=scripted_watermarks(), name="in")
    return run_inline(then(step(stream)))


def plain(stream: Any) -> Any:
    return stream.map(Query.answer, name="ask", errors="skip")


@given(scripts(), st.sampled_from([None, 1, 3]), st.booleans(), st.integers(1, 5), st.booleans())
def test_as_a_plain_map(script: list[Any], cut: int | None, ordered: bool, capacity: int, dead: bool) -> None:
    service = Service()

    def asking(stream: Any) -> Any:
        errors = "dead_letter" if dead else "skip"
        return stream.async_map(service, ordered=ordered, capacity=capacity, retry=RETRY, errors=errors, name="ask")

    def seen(stream: Any) -> Any:
        return stream.process(Seen())

    found = run([script], cut, 1, asking, seen)
    expected = run([script], cut, 1, plain, seen, crashes=False)
    assert found == expected if ordered else Counter(found) == Counter(expected)


@given(st.lists(scripts(), min_size=1, max_size=2), st.sampled_from([None, 1, 2]), st.booleans(), st.integers(1, 3))
def test_steps_that_see_order(parts: list[list[Any]], cut: int | None, ordered: bool, parallelism: int) -> None:
    """Whatever the order of answers, records come in theirs: also behind unordered ones."""

    def asking(stream: Any) -> Any:
        return stream.async_map(Service(), ordered=ordered, capacity=3, retry=RETRY, errors="skip", name="ask")

    def running(stream: Any) -> Any:
        return stream.key_by(lambda value: value % 3).process(Running(), name="running")

    found = run(parts, cut, parallelism, asking, running)
    expected = run(parts, cut, parallelism, plain, running, crashes=False)
    assert Counter(found) == Counter(expected)


@given(scripts(), st.sampled_from([None, 2]), st.integers(1, 4))
def test_some_records_in_a_call(script: list[Any], cut: int | None, batch: int) -> None:
    async def several(queries: list[Query]) -> list[int]:
        return [query.number * 10 for query in queries]

    found = run([script], cut, 1, lambda stream: stream.async_map(several, batch=batch, capacity=2), lambda stream: stream)
    assert found == [item.value.number * 30 for item in script if isinstance(item, Record)]


@given(scripts(), st.sampled_from([None, 2]), st.booleans(), st.booleans())
def test_several_records_out(script: list[Any], cut: int | None, ordered: bool, threads: bool) -> None:
    async def repeated(query: Query) -> list[int]:
        return [query.number] * query.turns

    def repeated_here(query: Query) -> list[int]:
        return [query.number] * query.turns

    def asking(stream: Any) -> Any:
        if threads:
            return stream.async_flat_map(repeated_here, ordered=ordered, capacity=2, threads=True)
        return stream.async_flat_map(repeated, ordered=ordered, capacity=3)

    def seen(stream: Any) -> Any:
        return stream.process(Seen())

    found = run([script], cut, 1, asking, seen)
    expected = run([script], cut, 1, lambda stream: stream.flat_map(repeated_here), seen, crashes=False)
    assert found == expected if ordered else Counter(found) == Counter(expected)


@given(
    st.lists(st.integers(0, 6), max_size=8),
    st.sampled_from([None, 1, 3]),
    st.sampled_from([None, 2, 4]),
    st.booleans(),
    st.booleans(),
)
def test_within_a_loop(numbers: list[int], cut: int | None, max_rounds: int | None, ordered: bool, keyed: bool) -> None:
    """What is asked in the body of a loop comes back in its rounds."""

    async def fewer(number: int) -> list[int]:
        await asyncio.sleep(0)
        return [number - 1] if number else []

    def run_loop(step: Any) -> Counter[Any]:
        env = StreamEnvironment("loops", parallelism=2)
        loop = env.from_source(ScriptedSource([*numbers, End()], cut=cut), name="in").iterate(max_rounds=max_rounds, name="loop")
        body = step(loop.key_by(lambda number: number % 3) if keyed else loop)
        loop.close_with(body)
        left, through = CollectSink(), CollectSink()
        if max_rounds is not None:
            loop.leftovers().sink_to(left)
        body.sink_to(through)
        execute_inline(env)
        return Counter([*(("left", one) for one in left.results()), *through.results()])

    found = run_loop(lambda loop: loop.async_flat_map(fewer, ordered=ordered, capacity=2))
    assert found == run_loop(lambda loop: loop.flat_map(lambda number: [number - 1] if number else []))
