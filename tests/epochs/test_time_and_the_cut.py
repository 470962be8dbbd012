"""Law: time does not depend on how the input was cut into epochs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock import KeyedProcessFunction, StreamEnvironment, ValueState, Watermarks

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
