"""Law: time does not depend on how the input was cut into epochs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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


def test_a_timer_fires_between_the_same_records_however_the_input_is_cut() -> None:
    assert silent(records_per_epoch=1) == silent(records_per_epoch=2) == silent(records_per_epoch=3)


def test_without_steps_time_moves_once_a_batch() -> None:
    """What `every=` is for: batches end where epochs do, and time moves between batches."""
    assert silent(records_per_epoch=1, every=None) != silent(records_per_epoch=3, every=None)
