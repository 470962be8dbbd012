"""A loop: records that come to its end go back to its beginning.

    input ──→ head ──→ body … ──→ tail ──→ leftovers
               ↑                   │
               └──── feedback ─────┘

Laws:
- The feedback edge is not one of the graph, which stays without cycles. What the tail takes is sent through the body again in the
  same epoch, in *turns*, as far as that is possible in one task (`penstock.compile.loops` says where), and up to a limit. The
  rest is state of the loop, and the head emits it first in the next epoch.
- The watermark behind the head stays below the timestamps of all that it has emitted in the epoch, and may yet come back; and of
  what waits at the tail. The end of time is passed on only in an epoch that began with an empty loop.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from penstock.ids import MAX_WATERMARK, Milliseconds, StepId
from penstock.plan.definition import Definition, StateDeclaration
from penstock.plan.schema import Schema
from penstock.records import NO_TIMESTAMP, Batch, Records, one_batch
from penstock.runtime.exchange import ChannelWriter
from penstock.runtime.frames import Payload, unkeyed
from penstock.runtime.job import LoopPlan
from penstock.runtime.loops.store import IN_FLIGHT, LoopStore
from penstock.runtime.messages import LoopReport
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services
from penstock.state.descriptors import OperatorListState

LEFTOVERS = "leftovers"
"""The side output of what has been through a loop as often as it may."""

TURNED_AT_MOST = 1_000_000
"""With so many records sent through a body again by a task, the rest waits for the next epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopHead(Definition):
    """Where a loop begins: its input, and what is fed back."""

    max_rounds: int | None = None
    turns: int
    """Turns of an epoch, at most."""
    record_type: Any = None

    @property
    def kind(self) -> str:
        return "iterate" if self.max_rounds is None else f"iterate, at most {self.max_rounds} rounds"

    def state(self) -> OperatorListState[Any]:
        return OperatorListState(None if self.record_type is None else tuple[int, int, self.record_type])  # type: ignore[name-defined]

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        state = self.state()
        return (StateDeclaration(step=step, name=IN_FLIGHT, state=state, kind=state.kind, scope="operator"),)

    def output(self, inputs: tuple[Schema | None, ...]) -> Schema | None:
        return inputs[0]

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return LoopHeadOperator(step, services, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTail(Definition):
    """Where a loop ends: what it takes goes back to the head `loop`."""

    loop: StepId
    head: LoopHead

    @property
    def kind(self) -> str:
        return "feedback"

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return LoopTailOperator(step, services, self)


class LoopHeadOperator(Operator):
    def __init__(self, step: StepId, services: Services, definition: LoopHead) -> None:
        super().__init__(step, services)
        self.plan: LoopPlan = services.job.loop(step)
        self.tail: LoopTailOperator | None = None
        """If it is in this task."""
        self._state = definition.state()
        self._out: Milliseconds | None = None
        """The least timestamp that was emitted in this epoch and may come back, through another task."""
        self._waits = False
        """Time has to wait for what may come back."""
        self._given: Milliseconds | None = None
        """The watermark before the loop; None: idle."""

    def begin(self) -> None:
        """Emit what was fed back in the last epoch."""
        found: dict[int, list[tuple[int, Any]]] = defaultdict(list)
        store = LoopStore(self.services, self.step, self._state)
        try:
            for time, rounds, value in store.elements:
                found[rounds].append((time, value))
        finally:
            store.close()
        for rounds, elements in sorted(found.items(), key=itemgetter(0)):
            times = np.asarray([time for time, _ in elements], dtype=np.int64)
            timed = bool((times != NO_TIMESTAMP).any())
            self.emit(Records([value for _, value in elements], times if timed else None), rounds)

    def on_batch(self, batch: Payload) -> None:
        self.records_in += len(batch)
        self.emit(unkeyed(batch).with_ticks(None), 0)

    def emit(self, batch: Batch, rounds: int) -> None:
        """Send records into the body."""
        if not self.plan.within:
            self._out = _least(self._out, _least_time(batch))
        with self.services.rounds.turn(self.step, rounds):
            self.outputs.emit(batch)

    def on_watermark(self, watermark: Milliseconds | None) -> None:
        self._given, self._waits = watermark, False
        if watermark == MAX_WATERMARK and not self.services.order.final:
            return  # the loop may not be empty
        held = self._held()
        if held is None:
            super().on_watermark(watermark)
            return
        self._waits = watermark is None or watermark >= held
        if watermark is not None:
            super().on_watermark(max(min(watermark, held - 1), self.watermark))

    def release(self) -> None:
        """The tail in this task has taken its turns: time may go on."""
        if self._waits:
            self.on_watermark(self._given)

    def finish(self) -> None:
        self.services.report_loop(self.step, LoopReport(waits=self._waits))

    def _held(self) -> Milliseconds | None:
        return _least(self._out, None if self.tail is None else self.tail.least)


class LoopTailOperator(Operator):
    def __init__(self, step: StepId, services: Services, definition: LoopTail) -> None:
        super().__init__(step, services)
        self.loop = definition.loop
        self.plan: LoopPlan = services.job.loop(definition.loop)
        self.store = LoopStore(services, definition.loop, definition.head.state())
        self.least: Milliseconds | None = None
        """The least timestamp of what waits for a turn, or for the next epoch."""
        self._max_rounds = definition.head.max_rounds
        self._turns = definition.head.turns
        self._turned = 0
        self._waiting: _ByRounds = {}
        self._staying: _ByRounds = {}
        """What this task cannot send through the body."""
        self.next_lap: list[ChannelWriter] | None = None
        """The ways to the next lap; None: there is none, and what waits is state."""

    @property
    def turns(self) -> bool:
        """Is there something to send through the body once more in this epoch?"""
        return bool(self._waiting) and self._turns > 0 and self._turned < TURNED_AT_MOST

    def on_batch(self, batch: Payload) -> None:
        self.records_in += len(batch)
        records, rounds = unkeyed(batch).with_ticks(None), self.services.rounds.of(self.loop) + 1
        if self._max_rounds is not None and rounds >= self._max_rounds:
            self.outputs.emitted += len(records)
            self.outputs.emit_side(LEFTOVERS, records)
        else:
            self._waiting.setdefault(rounds, []).append(records)
            self.least = _least(self.least, _least_time(records))

    def turn(self, send: Callable[[Batch, int], Batch | None]) -> None:
        """Send all that waits through the body, what has been through it least often first. `send` returns what it cannot."""
        waiting, self._waiting = self._waiting, {}
        self.least = None
        self._turns -= 1
        for rounds in sorted(waiting):
            batch = one_batch(waiting[rounds])
            rest = send(batch, rounds)
            self._turned += len(batch)
            if rest is not None and len(rest):
                self._staying.setdefault(rounds, []).append(rest)
                self._turned -= len(rest)

    def finish(self) -> None:
        if self.next_lap is not None:
            for batches in (self._staying, self._waiting):
                for rounds, parts in sorted(batches.items()):
                    with self.services.rounds.turn(self.loop, rounds):
                        for batch in parts:
                            for way in self.next_lap:
                                way.on_batch(batch)
            return
        staying = [
            (time, rounds, value)
            for batches in (self._staying, self._waiting)
            for rounds, parts in sorted(batches.items())
            for batch in parts
            for time, value in zip(_times(batch), batch.values(), strict=True)
        ]
        self.store.elements.update(staying)
        self.services.report_loop(self.loop, LoopReport(records=len(staying)))


_ByRounds = dict[int, list[Batch]]


def _times(batch: Batch) -> list[Milliseconds]:
    return [NO_TIMESTAMP] * len(batch) if batch.timestamps is None else batch.timestamps.tolist()


def _least_time(batch: Batch) -> Milliseconds | None:
    """The least timestamp; None: the batch has none."""
    times = batch.timestamps
    known = () if times is None else times[times != NO_TIMESTAMP]
    return int(np.min(known)) if len(known) else None


def _least(one: Milliseconds | None, other: Milliseconds | None) -> Milliseconds | None:
    return one if other is None else other if one is None else min(one, other)
