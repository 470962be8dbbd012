"""Connected streams: what types flow through them, and which pairings are refused when the program is built."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_type

import pytest

from penstock import DataStream, KeyedContext, StreamEnvironment, ValueState
from penstock.api import (
    BroadcastConnectedStreams,
    ConnectedStreams,
    KeyedBroadcastConnectedStreams,
    KeyedConnectedStreams,
)
from penstock.contexts import KeyedBroadcastContext, ProcessContext
from penstock.errors import PlanError
from penstock.functions import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from penstock.state import BroadcastMapState


class Sizes(KeyedCoProcessFunction[int, str, bytes, tuple[int, int]]):
    size = ValueState(int, 0)

    def process1(self, value: str, ctx: KeyedContext[int]) -> Iterable[tuple[int, int]]:
        self.size.update(self.size.value + len(value))
        yield ctx.key, self.size.value

    def process2(self, value: bytes, ctx: KeyedContext[int]) -> Iterable[tuple[int, int]]:
        self.size.update(self.size.value + 10 * len(value))
        yield ctx.key, self.size.value


class Plain(CoProcessFunction[str, bytes, float]):
    def process1(self, value: str, ctx: ProcessContext) -> Iterable[float]:
        yield float(len(value))

    def process2(self, value: bytes, ctx: ProcessContext) -> Iterable[float]:
        yield len(value) + 0.5


class Ruled(KeyedBroadcastProcessFunction[int, str, bytes, tuple[int, bytes]]):
    rules: BroadcastMapState[int, bytes] = BroadcastMapState(int, bytes)
    size = ValueState(int, 0)

    def process(self, value: str, ctx: KeyedContext[int]) -> Iterable[tuple[int, bytes]]:
        yield ctx.key, self.rules.get(len(value)) or b""

    def process_broadcast(self, value: bytes, ctx: KeyedBroadcastContext[int]) -> None:
        self.rules.put(len(value), value)
        assert_type(ctx.apply_to_keyed_state(self.size, self._sized), None)

    def _sized(self, key: int, size: ValueState[int]) -> None:
        size.update(key)


class LooselyRuled(BroadcastProcessFunction[str, bytes, float]):
    rules: BroadcastMapState[int, bytes] = BroadcastMapState(int, bytes)

    def process(self, value: str, ctx: ProcessContext) -> Iterable[float]:
        yield float(len(self.rules))

    def process_broadcast(self, value: bytes, ctx: ProcessContext) -> None:
        self.rules.put(len(value), value)


def environment() -> StreamEnvironment:
    return StreamEnvironment("connected", executor="inline")


def sides(env: StreamEnvironment) -> tuple[DataStream[str], DataStream[bytes]]:
    return env.from_collection(["a", "bb"], name="texts"), env.from_collection([b"ccc"], name="bytes")


def size_of(value: str | bytes) -> int:
    return len(value) % 2


def test_types_flow_through() -> None:
    texts, data = sides(environment())
    assert_type(texts.connect(data), ConnectedStreams[str, bytes])
    assert_type(texts.connect(data).map(len, len), DataStream[int])
    assert_type(texts.connect(data).process(Plain()), DataStream[float])
    keyed = texts.key_by(size_of).connect(data.key_by(size_of))
    assert_type(keyed, KeyedConnectedStreams[int, str, bytes])
    assert_type(keyed.process(Sizes()), DataStream[tuple[int, int]])
    assert_type(texts.connect(data.broadcast()), BroadcastConnectedStreams[str, bytes])
    assert_type(texts.connect(data.broadcast()).process(LooselyRuled()), DataStream[float])
    ruled = texts.key_by(size_of).connect(data.broadcast())
    assert_type(ruled, KeyedBroadcastConnectedStreams[int, str, bytes])
    assert_type(ruled.process(Ruled()), DataStream[tuple[int, bytes]])


def test_what_comes_of_them() -> None:
    texts, data = sides(environment())
    assert sorted(texts.connect(data).map(str.upper, bytes.decode).execute_and_collect()) == ["A", "BB", "ccc"]
    texts, data = sides(environment())
    assert sorted(
        texts.connect(data).flat_map(lambda text: list(text), lambda value: [str(n) for n in value]).execute_and_collect()
    ) == [
        *("99", "99", "99"),
        *("a", "b", "b"),
    ]
    texts, data = sides(environment())
    assert sorted(texts.connect(data).process(Plain()).execute_and_collect()) == [1.0, 2.0, 3.5]
    texts, data = sides(environment())
    met = texts.key_by(size_of).connect(data.key_by(size_of)).process(Sizes()).execute_and_collect()
    assert met in ([(1, 1), (0, 2), (1, 31)], [(0, 2), (1, 1), (1, 31)])


def refused(build: Any) -> str:
    with pytest.raises(PlanError) as caught:
        build()
    return f"{caught.value.what} / {caught.value.detail} / {caught.value.hint}"


ALIKE = "key both sides alike, a.key_by(...) and b.key_by(...), or neither"


def test_pairings_that_are_refused() -> None:
    texts, data = sides(environment())
    keyed: Any = texts.key_by(size_of)
    loose: Any = data
    assert refused(lambda: keyed.connect(loose)) == f"connect: the first stream is keyed, the second is not /  / {ALIKE}"
    assert refused(lambda: loose.connect(keyed)) == f"connect: the second stream is keyed, the first is not /  / {ALIKE}"
    assert "streams of two environments cannot be connected" in refused(lambda: texts.connect(sides(environment())[1]))
    assert "connect([1]): this is not a stream" in refused(lambda: loose.connect([1]))
    assert "the first stream is broadcast / " in refused(lambda: texts.broadcast().connect(loose))
    assert "the first stream is broadcast / " in refused(lambda: texts.broadcast().connect(data.broadcast()))
    typed = data.key_by(size_of, key_type=int)
    assert "input 2 has keys of another type" in refused(lambda: keyed.connect(typed).process(Sizes()))


class OneMethod(CoProcessFunction[Any, Any, Any]):
    def process1(self, value: Any, ctx: Any) -> None:
        """There is no process2."""


class NoContext(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process1(self, value: Any, ctx: Any) -> None:
        """As it should be."""

    def process2(self, value: Any) -> None:  # type: ignore[override]
        """It is given a context too."""


class Keeping(Plain):
    seen = ValueState(int, 0)


class Timed(Plain):
    def on_timer(self, timestamp: int, ctx: Any) -> None:
        """There are no timers without keys."""


class Broadcasting(Sizes):
    rules: BroadcastMapState[str, str] = BroadcastMapState(str, str)


def test_functions_that_are_refused() -> None:
    texts, data = sides(environment())
    loose: Any = texts.connect(data)
    keyed: Any = texts.key_by(size_of).connect(data.key_by(size_of))
    for streams in (loose, keyed):
        assert "OneMethod has no process2(value, ctx)" in refused(lambda streams=streams: streams.process(OneMethod()))
        assert "this is a class / " in refused(lambda streams=streams: streams.process(Plain))
        assert "map: what was given for the second stream is not a function: 3" in refused(
            lambda streams=streams: streams.map(str, 3)
        )
    assert "cannot be called as process2(value, ctx)" in refused(lambda: keyed.process(NoContext()))
    assert "is not a CoProcessFunction" in refused(lambda: loose.process("function"))
    message = refused(lambda: loose.process(Keeping()))
    assert "has the state 'seen', a ValueState: no CoProcessFunction on streams that are not keyed can have it" in message
    assert "bring the records of each key together with key_by(...)" in message
    assert "has on_timer, but its streams are not keyed" in refused(lambda: loose.process(Timed()))
    assert "no KeyedCoProcessFunction can have it" in refused(lambda: keyed.process(Broadcasting()))
    ruled: Any = texts.connect(data.broadcast())
    assert "is not a BroadcastProcessFunction" in refused(lambda: ruled.process(Plain()))
    assert "no BroadcastProcessFunction on streams that are not keyed can have it" in refused(lambda: ruled.process(Ruled()))
    with pytest.raises(TypeError):
        loose.map(str)
