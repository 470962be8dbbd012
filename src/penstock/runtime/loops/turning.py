"""The loops of a stage, in one task: what was fed back is sent through the body again, as far as this task can do that.

A loop without an exchange begins and ends here. Of one whose records go straight from its beginning to the stage of its end, by
key, those whose keys belong to this partition need not leave it: they take the way that they would come by, as if they had.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from penstock.ids import StepId
from penstock.records import Batch
from penstock.runtime.committed import CommittedState
from penstock.runtime.exchange import Channel, ChannelWriter, distinct_keys
from penstock.runtime.frames import Keyed
from penstock.runtime.inlets import Ways
from penstock.runtime.job import CompiledJob, Stage
from penstock.runtime.messages import EpochOrder, TaskReport
from penstock.runtime.operators.loop import LoopHead, LoopHeadOperator, LoopTailOperator
from penstock.runtime.operators.operator import Operator
from penstock.state.encoding.keys import key_codec
from penstock.state.key_groups import KeyGroups


@dataclass(frozen=True, slots=True)
class WayBack:
    """A channel from a loop's beginning to this stage."""

    channel: Channel
    ways: Ways


class Loops:
    """Those that begin or end in a task."""

    def __init__(self, operators: Mapping[StepId, Operator]) -> None:
        self.heads = [operator for operator in operators.values() if isinstance(operator, LoopHeadOperator)]
        self.tails = [operator for operator in operators.values() if isinstance(operator, LoopTailOperator)]
        self._operators = list(operators.values())
        self._ways: dict[int, WayBack] = {}
        for tail in self.tails:
            head = operators.get(tail.loop)
            if isinstance(head, LoopHeadOperator):
                head.tail = tail

    def begin(self) -> None:
        """Emit what was fed back in the last epoch."""
        for head in self.heads:
            head.busy_with(head.begin)

    def know(self, channels: Iterable[Channel], ways: Mapping[int, Ways]) -> None:
        """The channels of the stage, and what they bring records to."""
        self._ways = {channel.index: WayBack(channel, ways[channel.index]) for channel in channels}

    def turn(self) -> Iterator[None]:
        """Have the loops turn, until they are empty or may not turn any more. What comes out of one may go into the next."""
        for tail in self.tails:
            head = next((head for head in self.heads if head.tail is tail), None)
            if head is None and tail.plan.ways is None:
                continue
            send = partial(self._again, tail, head)
            while True:
                while tail.turns:
                    tail.busy_with(tail.turn, send)
                    yield
                if head is not None:
                    head.busy_with(head.release)  # timers may feed something back
                for operator in self._operators:
                    operator.busy_with(operator.settle)
                if not tail.turns:
                    break

    def lap(self, writers: Mapping[int, ChannelWriter]) -> None:
        """There is another lap: what does not stay in the partition is sent to it by these, not kept."""
        for tail in self.tails:
            if tail.plan.laps:
                tail.next_lap = [writers[index] for index in tail.plan.ways or ()]

    def reports(self) -> list[TaskReport]:
        """What is in the loops now, as tasks of their stores would report it."""
        return [tail.busy_with(tail.store.report) for tail in self.tails]

    def close(self) -> None:
        for tail in self.tails:
            tail.store.close()

    def _again(self, tail: LoopTailOperator, head: LoopHeadOperator | None, batch: Batch, rounds: int) -> Batch | None:
        """Send records through the body; returns those that belong to other partitions."""
        if head is not None:
            head.busy_with(head.emit, batch, rounds)
            return None
        services, job = tail.services, tail.services.job
        backs = [self._ways[index] for index in tail.plan.ways or ()]
        arrivals = [_Arrival(batch, back.channel, job.key_groups, job.parallelism, services.partition) for back in backs]
        here = np.logical_and.reduce([arrival.here for arrival in arrivals])
        rows = np.flatnonzero(here)
        with services.rounds.turn(tail.loop, rounds):
            for back, arrival in zip(backs, arrivals, strict=True):
                if len(rows):
                    back.ways.on_batch(arrival.of(rows))
        return None if len(rows) == len(batch) else batch.take(np.flatnonzero(~here))


class _Arrival:
    """A batch as an exchange by key would bring it. `here`: the rows that this partition would get."""

    def __init__(self, batch: Batch, channel: Channel, groups: KeyGroups, targets: int, partition: int) -> None:
        self._batch = batch
        self._keys, self._codes = distinct_keys(batch, channel.exchange, key_codec(channel.exchange.key_type), channel.step)
        target_of_key = groups.of_many(self._keys) * targets // groups.count
        self.here = (target_of_key == partition)[self._codes]

    def of(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Keyed:
        codes = self._codes[rows]
        used, numbers = np.unique(codes, return_inverse=True)
        return Keyed(self._batch.take(rows), [self._keys[code] for code in used.tolist()], numbers.astype(np.int32))


def open_stores(job: CompiledJob, stage: Stage, partition: int, order: EpochOrder) -> None:
    """Open, and so read and check, what is in the loops that begin in a stage."""
    for step in stage.steps:
        if isinstance(step.definition, LoopHead):
            committed = CommittedState(job, job.stages[job.loop(step.step).store], partition, order)
            try:
                committed.reads()
            finally:
                committed.close()
