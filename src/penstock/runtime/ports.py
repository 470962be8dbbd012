"""The several inputs of a step.

Laws:
- Time is the least of all inputs (`penstock.timing.valve`).
- A step that sees order takes the records of all its inputs in turn, by (tick, port, lane, upstream, sequence). What came in at
  one port waits until time has got beyond it at all of them: then all there is up to there has come.
- Time does not get beyond the *limit*, which is known from what the upstreams said at their end: there nothing has to wait.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from penstock.ids import MAX_WATERMARK, Milliseconds
from penstock.runtime.frames import Keyed, Payload
from penstock.runtime.operators.operator import Operator
from penstock.runtime.ordering import END, Merge, ticked


class Port:
    """The one input of an operator."""

    __slots__ = ("_index", "_operator")

    def __init__(self, operator: Operator, index: int) -> None:
        self._operator = operator
        self._index = index

    def on_batch(self, batch: Payload) -> None:
        self._operator.enter(self._index, batch)

    def on_watermark(self, watermark: Milliseconds | None) -> None:
        self._operator.pass_time("watermark", watermark, partial(self._operator.on_watermark, watermark))

    def look_ahead(self, limit: Milliseconds) -> None:
        self._operator.look_ahead(limit)


class JoinedPort(Port):
    """One of several inputs of an operator that takes records as they come."""

    __slots__ = ()

    def on_watermark(self, watermark: Milliseconds | None) -> None:
        valve = self._operator.valve
        if valve.take(self._index, watermark):
            self._advance(valve.watermark)
        elif valve.idle:
            super().on_watermark(None)

    def _advance(self, watermark: Milliseconds) -> None:
        super().on_watermark(watermark)


class MergedPort(JoinedPort):
    """An input of an operator that takes records in turn."""

    __slots__ = ("_inputs",)

    def __init__(self, inputs: MergedInputs, index: int) -> None:
        super().__init__(inputs.operator, index)
        self._inputs = inputs

    def on_batch(self, batch: Payload) -> None:
        self._operator.busy_with(self._inputs.add, self._index, batch)

    def look_ahead(self, limit: Milliseconds) -> None:
        self._inputs.limit = min(self._inputs.limit, limit)
        super().look_ahead(self._inputs.limit)

    def _advance(self, watermark: Milliseconds) -> None:
        self._operator.busy_with(self._inputs.pass_on, watermark)
        super()._advance(watermark)


class MergedInputs:
    """What came in at the ports of an operator and waits for its turn."""

    def __init__(self, operator: Operator, inputs: int) -> None:
        self.operator = operator
        self.limit = MAX_WATERMARK
        """Time does not get beyond this in this epoch."""
        self._waiting = [Merge() for _ in range(inputs)]
        self._batches = 0

    def add(self, port: int, batch: Payload) -> None:
        valve = self.operator.valve
        self._batches += 1
        self._waiting[port].add((self._batches, 0, 0), ticked(batch, valve.watermark_of(port)))
        if valve.watermark >= self.limit:
            self._release(END, self.limit)

    def pass_on(self, watermark: Milliseconds) -> None:
        """All records with ticks below the watermark have come."""
        self._release(END if watermark >= self.limit else watermark, self.limit)

    def flush(self) -> None:
        """All records of the epoch have come. If nothing holds time back, none of them is ahead of it."""
        valve = self.operator.valve
        self._release(END, min(self.limit, MAX_WATERMARK - 1 if valve.idle else valve.watermark))

    def _release(self, horizon: Milliseconds, limit: Milliseconds) -> None:
        released = ((port, merge.release(horizon, limit)) for port, merge in enumerate(self._waiting))
        batches = {port: payload for port, payload in released if payload is not None}
        if len(batches) == 1:
            ((port, payload),) = batches.items()
            self.operator.enter(port, payload)
        elif batches:
            ticks = np.concatenate([_ticks(payload) for payload in batches.values()])
            ports = np.repeat(np.fromiter(batches, dtype=np.intp), [len(payload) for payload in batches.values()])
            self.operator.busy_with(self.operator.on_merged, batches, ports[np.argsort(ticks, kind="stable")])


def _ticks(payload: Payload) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    ticks = (payload.batch if isinstance(payload, Keyed) else payload).ticks
    assert ticks is not None
    return ticks
