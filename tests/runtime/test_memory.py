"""A task keeps nothing of its state once it is over, also while nobody searches for cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator

from penstock import GeneratorSource, KeyedContext, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.state.overlay.keyed import Slot
from penstock.testing import CollectSink


class Remember(KeyedProcessFunction[int, int, int]):
    last: ValueState[int] = ValueState(int)

    def process(self, value: int, ctx: KeyedContext[int]) -> Iterator[int]:
        self.last.update(value)
        ctx.timers.register_processing_time(10**15)
        return iter(())


def test_slots_go_with_their_task() -> None:
    alive: list[int] = []
    env = StreamEnvironment("forgets", executor="inline", parallelism=2, max_records_per_epoch=100, first_records_per_epoch=100)
    numbers = env.from_source(GeneratorSource(int, count=1000), name="numbers")
    numbers.key_by(lambda n: n % 70).process(Remember(), name="remember").sink_to(CollectSink(), name="out")
    gc.collect()
    gc.disable()
    try:
        env.execute(listener=lambda _: alive.append(sum(isinstance(one, Slot) for one in gc.get_objects())))
    finally:
        gc.enable()
    assert len(alive) >= 10
    assert max(alive) < 70, "fewer than an epoch has"
