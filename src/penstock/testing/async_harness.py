"""A step that asks other systems, under a microscope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.api.environment import StreamEnvironment
from penstock.api.stream import DataStream
from penstock.functions import OutputTag
from penstock.ids import Milliseconds
from penstock.plan.definition import DEAD_LETTERS
from penstock.runtime.operators.operator import DeadLetter
from penstock.testing.harness import Emitted, Event, OperatorHarness


class AsyncHarness(OperatorHarness):
    """Drives the async step, or the lookup join, that `step` makes of a stream. What is asked is awaited when output is taken.

    >>> async def double(number):
    ...     return 2 * number
    >>> with AsyncHarness(lambda numbers: numbers.async_map(double, capacity=10)) as harness:
    ...     harness.send_all([(1, None), (2, None)])
    ...     harness.take()
    [(2, None), (4, None)]
    """

    def __init__(self, step: Callable[[DataStream[Any]], DataStream[Any]], *, processing_time: Milliseconds = 0) -> None:
        env = StreamEnvironment("harness")
        made = step(env.from_collection([]))
        super().__init__(env.graph.nodes[made._step].definition, key=lambda _: 0, processing_time=processing_time)

    @property
    def output(self) -> list[Emitted]:
        self._settle()
        return super().output

    def take_events(self) -> list[Event]:
        self._settle()
        return super().take_events()

    def side(self, tag: OutputTag[Any] | str) -> list[Emitted]:
        self._settle()
        return super().side(tag)

    def dead_letters(self) -> list[DeadLetter]:
        """What was rejected since the last call."""
        return [letter for letter, _ in self.side(DEAD_LETTERS)]

    def _settle(self) -> None:
        for operator in self._operators:
            operator.settle()
