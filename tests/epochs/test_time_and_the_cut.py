"""Law: time does not depend on how the input was cut into epochs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock import GeneratorSource, KeyedProcessFunction, StreamEnvironment, ValueState, Watermarks

EVENTS = [("b", 1_000), ("x", 30_000), ("b", 31_000)]


class Silence(KeyedProcessFunction[str, tuple[str, int], tuple[str, int]]):
    """Reports a key that was silent for ten seconds."""

    due: ValueState[int | None] = ValueState(int)

    def process(self, value: tuple[str, int], ctx: Any) -> None:
        if self.due.value is not None:
            ctx.timers.delete_event_time(self.due.value)
        self.due.update(value[1] + 10_000)
        ctx.timers.register_event_time(value[1] + 10_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[tuple[str, int]]:
        self.due.clear()
        yield ctx.key, timestamp


def silent(records_per_epoch: int, every: float | None = 1) -> list[tuple[str, int]]:
    env = StreamEnvironment("silence", executor="inline", parallelism=1, max_records_per_epoch=records_per_epoch)
    stream = env.from_collection(EVENTS, watermarks=Watermarks.monotonous(timestamp=lambda event: event[1], every=every))
    return stream.key_by(0).process(Silence(), name="silence").execute_and_collect()


@pytest.mark.parametrize("every", [None, 1])
def test_a_timer_fires_between_the_same_records_however_the_input_is_cut(every: float | None) -> None:
    assert silent(1, every) == silent(2, every) == silent(3, every) == [("b", 11_000), ("x", 40_000), ("b", 41_000)]


class Once(KeyedProcessFunction[int, dict[str, int], int]):
    """How many records of a key came before its timer, which is due after all of them."""

    seen = ValueState(int, default=0)

    def process(self, value: dict[str, int], ctx: Any) -> None:
        self.seen.update(self.seen.value + 1)
        ctx.timers.register_event_time(1_000_000)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[int]:
        yield self.seen.value


def test_a_source_with_nothing_more_to_read_now_is_not_over() -> None:
    """A rate gives a few records at a time: time ends when there will never be more."""
    env = StreamEnvironment("rate", executor="inline", parallelism=2)
    source = GeneratorSource(lambda n: {"k": n % 2, "time": n}, count=300, rate=1_000, partitions=2)
    stream = env.from_source(source, watermarks=Watermarks.monotonous(timestamp="time"), name="in")
    assert stream.key_by("k").process(Once(), name="once").execute_and_collect() == [150, 150]
