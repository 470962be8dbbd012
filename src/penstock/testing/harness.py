"""One operator under a microscope.

    harness = KeyedHarness(CountVisits(), key=lambda visit: visit.page)
    harness.send(visit, timestamp=5)
    harness.watermark(10)
    assert harness.take() == [(..., 5)]

The operator is the real one, in a real task, on a real store: what the harness leaves out is the rest of the job. Between two
snapshots its work is one epoch; a snapshot writes the delta files that a job would write, and goes on with the next.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.api.environment import StreamEnvironment
from penstock.api.keyed import KeyedStream
from penstock.api.stream import DataStream
from penstock.compile.compiler import Target, compile_program
from penstock.connectors.collection.source import CollectionSource
from penstock.epochs.planning.report_check import check_copies
from penstock.epochs.planning.report_merge import files_of, next_due, next_layout, watermarks_of
from penstock.errors import ConfigError
from penstock.functions import OutputTag
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Epoch, JobId, Milliseconds, StepId, Term
from penstock.jobs.manifest import StateLayout
from penstock.plan.definition import Definition, ErrorPolicy, Takes
from penstock.plan.exchange import Exchange
from penstock.plan.nodes import Graph, Input
from penstock.records import NO_TIMESTAMP, Batch, Records
from penstock.runtime.frames import Keyed
from penstock.runtime.messages import EpochOrder, PartitionState, attempt_name
from penstock.runtime.operators.keyed import KeyedProcess
from penstock.runtime.operators.operator import Operator, Outputs, Receiver
from penstock.runtime.operators.source import SourceStep
from penstock.runtime.ports import JoinedPort, Port
from penstock.runtime.services import FunctionPool, Services
from penstock.runtime.task import Task
from penstock.state.encoding.keys import key_codec
from penstock.state.entries.kinds import kinds
from penstock.state.entries.store_keys import state_id_of_store_key
from penstock.state.key_groups import NEW_JOBS, KeyGroups, partition_of
from penstock.state.overlay.handles import Changes
from penstock.storage import LocalStorage
from penstock.testing.running import close_stores
from penstock.timing.valve import Valve

Emitted = tuple[Any, Milliseconds | None]
Event = Emitted | Milliseconds
"""What came out, in order: (value, timestamp), or a bare number, a watermark that was passed on."""

STEP = StepId("harness")


@dataclass(frozen=True)
class Snapshot:
    """The state of a harness: files in its storage, and the times."""

    layout: StateLayout
    watermarks: dict[str, Milliseconds]
    processing_time: Milliseconds
    inputs: tuple[Milliseconds, ...] = (MIN_WATERMARK,)
    """The watermark of each input."""


class _Collector:
    """Receives what one partition's operator emits on one output."""

    def __init__(self, add: Callable[[Emitted], None], on_watermark: Callable[[Milliseconds | None], None] | None = None) -> None:
        self._add = add
        self._watermark = on_watermark

    def on_batch(self, batch: Batch) -> None:
        values = batch.values()
        times = [NO_TIMESTAMP] * len(values) if batch.timestamps is None else batch.timestamps.tolist()
        for value, time in zip(values, times, strict=True):
            self._add((value, None if time == NO_TIMESTAMP else time))

    def on_watermark(self, watermark: Milliseconds | None) -> None:
        if self._watermark is not None:
            self._watermark(watermark)


class _SideOutputs(dict[str, list[Receiver]]):
    """Collects every side output, whatever its tag."""

    def __init__(self, sides: dict[str, list[Emitted]]) -> None:
        super().__init__()
        self._sides = sides

    def get(self, tag: str, default: Any = None) -> Any:
        if tag not in self:
            self[tag] = [_Collector(self._sides.setdefault(tag, []).append)]
        return self[tag]


Key = Callable[[Any], Any]


class OperatorHarness:
    """Drives the operator of any step. `key` gives the key of a value; of a step with several inputs there is one for each, and
    None for one that is not keyed."""

    def __init__(
        self,
        definition: Definition,
        *,
        key: Key | Sequence[Key | None] | None,
        key_type: Any = None,
        parallelism: int = 1,
        max_parallelism: int = 128,
        key_hash: int = NEW_JOBS,
        processing_time: Milliseconds = 0,
    ) -> None:
        self._definition = definition
        self._takes = definition.takes(1)
        self._keys: Sequence[Key | None] = [key] * len(self._takes) if key is None or callable(key) else key
        self._inputs = [MIN_WATERMARK] * len(self._takes)
        """The watermark of each input."""
        self._in_turn = 0
        self._codec = key_codec(key_type)
        self._key_groups = KeyGroups(max_parallelism, key_hash)
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-harness-")
        self._storage = LocalStorage(self._folder.name + "/storage")
        self._job = JobId(uuid.uuid4().hex)
        self._graph = _given(definition, self._keys)
        self._epoch = 0
        self._term = Term(0)
        self._events: list[tuple[int | None, Event]] = []
        """With the partition that it came out of; None: of all, a watermark."""
        self._sides: dict[str, list[Emitted]] = {}
        self._pool = FunctionPool()
        self._start(None, {}, processing_time, parallelism)

    # --- input -------------------------------------------------------------------------------------------------------------

    def send(self, value: Any, timestamp: Milliseconds | None = None, *, port: int = 0, partition: int | None = None) -> None:
        """One record, at the input of that number. A user's error is raised as `UserCodeError`.

        It goes to the partition of its key; to all if that input is broadcast; otherwise to one after another. `partition`: to
        that one, whatever the key.
        """
        times = None if timestamp is None else np.asarray([timestamp], dtype=np.int64)
        key, payload = self._keys[port], Records([value], times)
        if partition is not None:
            targets = [partition]
            self._alike &= not self._takes[port].broadcast
        elif self._takes[port].broadcast:
            targets = [*range(self.parallelism)]
        elif key is None:
            targets = [self._in_turn % self.parallelism]
            self._in_turn += 1
        else:
            targets = [self._partition_of(self._codec.encode(key(value)))]
        for target in targets:
            given = payload if key is None else Keyed(payload, [self._codec.encode(key(value))], np.zeros(1, dtype=np.int32))
            self._ports[target][port].on_batch(given)

    def partition_of(self, value: Any, port: int = 0) -> int:
        """The partition of a value's key."""
        key = self._keys[port]
        if key is None:
            raise ConfigError(f"input {port} is not keyed", hint="a record of it is of no partition")
        return self._partition_of(self._codec.encode(key(value)))

    def send_all(self, records: list[tuple[Any, Milliseconds | None]]) -> None:
        """Several records of a keyed step, (value, timestamp), as one batch for each partition."""
        key = self._keys[0]
        assert key is not None
        batches: dict[int, list[tuple[bytes, Any, Milliseconds]]] = {}
        for value, timestamp in records:
            encoded = self._codec.encode(key(value))
            partition = self._partition_of(encoded)
            row = (encoded, value, NO_TIMESTAMP if timestamp is None else timestamp)
            batches.setdefault(partition, []).append(row)
        for partition, rows in sorted(batches.items()):
            keys = list(dict.fromkeys(encoded for encoded, _, _ in rows))
            codes = np.asarray([keys.index(encoded) for encoded, _, _ in rows], dtype=np.int32)
            times = np.asarray([time for _, _, time in rows], dtype=np.int64)
            self._ports[partition][0].on_batch(Keyed(Records([value for _, value, _ in rows], times), keys, codes))

    def watermark(self, time: Milliseconds, *, port: int | None = None) -> None:
        """Event time reaches `time`; of one input, if a port is given: that of the step is the least of them."""
        numbers = range(len(self._takes)) if port is None else [port]
        for number in numbers:
            self._inputs[number] = max(self._inputs[number], time)
        for ports in self._ports:
            for number in numbers:
                ports[number].on_watermark(time)

    def processing_time(self, now: Milliseconds) -> None:
        """The clock reaches `now`: processing-time timers fire."""
        self._now = now
        for services, operator in zip(self._services, self._operators, strict=True):
            services.processing_time = now
            operator.on_processing_time(now)

    def end(self) -> None:
        """The input is over for good: all time has passed, and every timer fires."""
        self.watermark(MAX_WATERMARK)
        for operator in self._operators:
            operator.on_end()

    # --- output ------------------------------------------------------------------------------------------------------------

    @property
    def output(self) -> list[Emitted]:
        """(value, timestamp) of everything emitted and not yet taken."""
        return [event for _, event in self._events if isinstance(event, tuple)]

    def take(self, *, partition: int | None = None) -> list[Emitted]:
        """The output since the last call; of one partition, if it is given."""
        if partition is None:
            return [event for event in self.take_events() if isinstance(event, tuple)]
        taken = [event for origin, event in self._events if origin == partition and isinstance(event, tuple)]
        self._events = [(origin, event) for origin, event in self._events if origin != partition]
        return taken

    def take_events(self) -> list[Event]:
        """The output since the last call, with the watermarks that were passed on between."""
        events = [event for _, event in self._events]
        self._events = []
        return events

    def side(self, tag: OutputTag[Any] | str) -> list[Emitted]:
        """The side output since the last call."""
        emitted = self._sides.get(tag if isinstance(tag, str) else tag.name, [])
        taken = emitted[:]
        emitted.clear()
        return taken

    # --- state -------------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Commit what was done since the last snapshot, as an epoch of a job would be."""
        reports = []
        for task, services, operator in zip(self._tasks, self._services, self._operators, strict=True):
            operator.finish()
            task._finish(services)
            services.committed.close()
            reports.append(task._report)
        if self._alike:
            check_copies(reports)
        snapshot = Snapshot(
            next_layout(self._layout, files_of(reports).items(), next_due(self._layout, reports)),
            watermarks_of(reports),
            self._now,
            tuple(self._inputs),
        )
        self._open(snapshot.layout, snapshot.watermarks)
        return snapshot

    def restore(self, snapshot: Snapshot, *, parallelism: int | None = None) -> None:
        """Throw the operator away and make a new one from the snapshot."""
        for services in self._services:
            services.committed.close()
        self._pool.close()
        self._pool = FunctionPool()
        self._inputs = list(snapshot.inputs)
        self._start(snapshot.layout, snapshot.watermarks, snapshot.processing_time, parallelism or self.parallelism)

    def state_entries(self) -> int:
        """How many entries of keyed state there are, timers aside; a list counts as one."""
        states = self._definition.states(STEP)
        known = {self._state_ids[s.step, s.name]: kinds()[s.kind] for s in states if s.scope == "keyed"}
        entries = ((number, key) for number, key in self._entries() if number in known and not known[number].internal)
        return len({known[number].shared_prefix(key) for number, key in entries})

    def event_timers(self) -> int:
        """How many event-time timers are registered."""
        return self._timers("timers:event")

    def processing_timers(self) -> int:
        """How many processing-time timers are registered."""
        return self._timers("timers:processing")

    def close(self) -> None:
        """Remove everything."""
        for services in self._services:
            services.committed.close()
        self._pool.close()
        close_stores(self._folder.name)
        self._folder.cleanup()

    def __enter__(self) -> OperatorHarness:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- the surroundings of a task ----------------------------------------------------------------------------------------

    def _start(
        self, before: StateLayout | None, watermarks: dict[str, Milliseconds], now: Milliseconds, parallelism: int
    ) -> None:
        self.parallelism = parallelism
        self._now = now
        self._term = Term(self._term + 1)
        target = Target(
            name="harness",
            job=self._job,
            storage=self._storage,
            parallelism=parallelism,
            key_groups=self._key_groups,
            term=self._term,
            local_dir=self._folder.name + "/local",
        )
        compiled = compile_program(self._graph, before, {}, target, allow_dropped=False, rewrites=())  # this operator, no other
        self._state_ids, self._compiled = compiled.states.ids, compiled.job
        self._stage = compiled.job.stages[-1]
        self._open(compiled.layout, watermarks)

    def _open(self, layout: StateLayout, watermarks: dict[str, Milliseconds]) -> None:
        """Begin an epoch: a task for each partition."""
        self._layout = layout
        self._epoch += 1
        self._valve = Valve(self.parallelism, min(watermarks.values(), default=MIN_WATERMARK))
        order = EpochOrder(
            epoch=Epoch(self._epoch),
            term=self._term,
            plan=self._epoch,
            head=Epoch(self._epoch - 1),
            processing_time=self._now,
            watermarks=watermarks,
            states=[
                [PartitionState(tail=list(chain), next_due=due) for chain, due in zip(chains, dues, strict=True)]
                for chains, dues in zip(layout.chains, layout.next_due, strict=True)
            ],
        )
        self._tasks: list[Task] = []
        self._services: list[Services] = []
        self._operators: list[Operator] = []
        self._ports: list[list[Port]] = []
        self._alike = True
        """All partitions have been given the same broadcast records."""
        for partition in range(self.parallelism):
            attempt = attempt_name(self._term, self._epoch, self._stage.index, partition, self._epoch)
            task = Task(self._compiled, self._stage.index, partition, order, attempt, self._pool)
            services = Services(self._compiled, self._stage, partition, order, attempt, self._pool)
            task._build(services)
            operator = task._operators[STEP]
            self._wire(operator.outputs, partition)
            self._tasks.append(task)
            self._services.append(services)
            self._operators.append(operator)
            several = len(self._takes) > 1
            self._ports.append([(JoinedPort if several else Port)(operator, port) for port in range(len(self._takes))])
            for port, time in enumerate(self._inputs if several else ()):
                operator.valve.take(port, time)

    def _partition_of(self, encoded: bytes) -> int:
        return partition_of(self._key_groups.of(encoded), self.parallelism, self._key_groups.count)

    def _wire(self, outputs: Outputs, partition: int) -> None:
        def passed_on(watermark: Milliseconds | None) -> None:
            if self._valve.take(partition, watermark):
                self._events.append((None, self._valve.watermark))

        outputs.main.append(_Collector(lambda event: self._events.append((partition, event)), passed_on))
        outputs.side = _SideOutputs(self._sides)

    def _entries(self) -> list[tuple[int, bytes]]:
        """(state id, store key) of every committed entry, once all is committed."""
        self.snapshot()
        found: Changes = []
        for services in self._services:
            found += services.committed.range(b"", b"\xff" * 8)
        return [(state_id_of_store_key(key), key) for key, _ in found]

    def _timers(self, name: str) -> int:
        wanted = self._state_ids[STEP, name]
        return sum(state_id == wanted for state_id, _ in self._entries())


def _given(definition: Definition, keys: Sequence[Key | None]) -> Graph:
    """A program of the step and what it takes."""
    graph = Graph().add(SourceStep(source=CollectionSource([])), (), name=None, label="input")
    source = graph.newest.step

    def exchange(takes: Takes, key: Key | None) -> Exchange:
        if takes.broadcast:
            return Exchange(kind="broadcast")
        if key is None or not takes.keyed:
            return Exchange(kind="rebalance")
        return Exchange(kind="key_by", selector=key, key_type=takes.key_type)

    takes = definition.takes(1)
    inputs = (Input(step=source, exchange=exchange(one, key)) for one, key in zip(takes, keys, strict=True))
    return graph.add(definition, tuple(inputs), name=STEP, label="harness")


class KeyedHarness(OperatorHarness):
    """Drives a `KeyedProcessFunction`.

    >>> from penstock import KeyedProcessFunction, ValueState
    >>> class Changes(KeyedProcessFunction):
    ...     last = ValueState(int)
    ...     def process(self, value, ctx):
    ...         if value != self.last.value:
    ...             self.last.update(value)
    ...             yield value
    >>> with KeyedHarness(Changes(), key=lambda value: "all") as harness:
    ...     for value in (1, 1, 2):
    ...         harness.send(value)
    ...     [value for value, _ in harness.take()]
    [1, 2]
    """

    def __init__(
        self,
        function: Any,
        key: Callable[[Any], Any],
        *,
        key_type: Any = None,
        errors: ErrorPolicy = "fail",
        parallelism: int = 1,
        max_parallelism: int = 128,
        processing_time: Milliseconds = 0,
    ) -> None:
        super().__init__(
            KeyedProcess(body=function, key_type=key_type, errors=errors),
            key=key,
            key_type=key_type,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            processing_time=processing_time,
        )


class WindowHarness(OperatorHarness):
    """Drives the windows that `windows` makes of a keyed stream.

    >>> from penstock import TumblingWindows
    >>> counts = lambda words: words.window(TumblingWindows(seconds=1)).fold(0, lambda n, _: n + 1)
    >>> with WindowHarness(counts, key=lambda word: word) as harness:
    ...     harness.send("a", 10)
    ...     harness.watermark(1000)
    ...     harness.take()
    [(1, 999)]
    """

    def __init__(
        self,
        windows: Callable[[KeyedStream[Any, Any]], DataStream[Any]],
        key: Callable[[Any], Any],
        *,
        key_type: Any = None,
        parallelism: int = 1,
        max_parallelism: int = 128,
        processing_time: Milliseconds = 0,
    ) -> None:
        env = StreamEnvironment("harness")
        made = windows(env.from_collection([]).key_by(key, key_type=key_type))
        super().__init__(
            env.graph.nodes[made._step].definition,
            key=key,
            key_type=key_type,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            processing_time=processing_time,
        )
