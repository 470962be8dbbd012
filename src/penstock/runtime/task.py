"""A stage task: one partition of one stage, for one epoch.

    frames in (or splits) → operators → frames out, sink output staged, one delta of changed state, a report

Laws:
- The task fails unless its input is whole: a trailer from every upstream, with as many frames as it says.
- What a user's function did wrong is in the report; what the machine did is raised, for the executor to retry.
- Nothing a task writes is visible before the loop has committed the epoch.
"""

from __future__ import annotations

import socket
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from penstock.diagnosis.failures import nature_of
from penstock.diagnosis.tracebacks import folded
from penstock.errors import EpochFailedError, PenstockError, StorageError
from penstock.failpoints import fail_point
from penstock.ids import MIN_WATERMARK, StepId
from penstock.jobs.step_metrics import StepMetrics
from penstock.runtime.committed import CommittedState
from penstock.runtime.deltas import write_changes
from penstock.runtime.exchange import Channel, ChannelWriter, FrameWriter
from penstock.runtime.frames import (
    Frame,
    LapChanges,
    RowTypes,
    Trailer,
    decode_changes,
    decode_trailer,
    encode_trailer,
    is_changes,
    is_trailer,
)
from penstock.runtime.inlets import Inlet, OrderedInlet, Ways, pass_on
from penstock.runtime.job import CompiledJob, Stage
from penstock.runtime.loops.laps import passed_on, with_earlier
from penstock.runtime.loops.rounds import Rounds
from penstock.runtime.loops.turning import Loops, open_stores
from penstock.runtime.messages import EpochOrder, Failure, TaskReport, encode_report
from penstock.runtime.operators.operator import Operator, Receiver
from penstock.runtime.operators.sink import SinkStep
from penstock.runtime.operators.source import SourceOperator
from penstock.runtime.ordering import END, ROUND_ROWS, ShortOfBoundError
from penstock.runtime.ports import JoinedPort, MergedInputs, MergedPort, Port
from penstock.runtime.services import FunctionPool, Observe, Services
from penstock.runtime.spill import FrameBuffer
from penstock.state.encoding.keys import key_codec

_HOST = socket.gethostname()


class Task:
    """Runs once: `frames()` for a stage that feeds another, `report()` for the last."""

    def __init__(
        self,
        job: CompiledJob,
        stage_index: int,
        partition: int,
        order: EpochOrder,
        attempt: str,
        pool: FunctionPool,
        observe: Observe | None = None,
        *,
        lap: int = 0,
    ) -> None:
        self.job = job
        self._lap = lap
        self._more = (stage_index, lap + 1) in job.chain(order.laps)
        """There is another lap of this stage."""
        self._earlier: LapChanges | None = None
        """What the laps before have changed."""
        self._beside: Trailer | None = None
        """What the upstream of the same number said at its end."""
        self.stage: Stage = job.stages[stage_index]
        self.partition = partition
        self.order = order
        self.attempt = attempt
        self._pool = pool
        self._observe = observe
        self._rows = RowTypes(list(job.rows))
        self._writer = FrameWriter(partition, job.parallelism, self._rows)
        self._report = TaskReport(stage=stage_index, partition=partition, attempt=attempt, lap=lap, host=_HOST)
        self._operators: dict[StepId, Operator] = {}
        self._merged: dict[StepId, MergedInputs] = {}
        self._loops = Loops({})
        self._channels_out: list[ChannelWriter] = []
        self._latest = MIN_WATERMARK
        self._failed = False
        self._started = time.perf_counter()

    # --- what executors call -----------------------------------------------------------------------------------------------

    def frames(self, incoming: Iterable[bytes] | None) -> Iterator[tuple[int, bytes]]:
        """Run, yielding (target partition, frame); the trailers come last."""
        yield from self._run(incoming)
        again = [channel.index for channel in self.stage.channels_in] if self._more else []
        out, beside = self._channels_out, self._beside
        watermarks = passed_on({w.channel.index: None if w.idle else w.watermark for w in out}, beside, "watermarks", again)
        before_end = passed_on({w.channel.index: w.before_end for w in out if w.ended}, beside, "before_end", again)
        reached = passed_on({w.channel.index: w.reached for w in out}, beside, "reached", again)
        for target in range(self.job.parallelism):
            yield (
                target,
                encode_trailer(
                    Trailer(
                        upstream=self.partition,
                        attempt=self.attempt,
                        frames=self._writer.counts[target],
                        consumed=self._report.consumed,
                        watermarks=watermarks,
                        before_end=before_end,
                        reached=reached,
                        latest=self._latest,
                        failed=self._failed,
                        report=encode_report(self._report) if target == 0 else b"",
                    )
                ),
            )

    def report(self, incoming: Iterable[bytes] | None) -> bytes:
        """Run the last stage: no frames go out."""
        for _ in self._run(incoming):
            raise AssertionError("the last stage sent a frame")
        return encode_report(self._report)

    # --- running -----------------------------------------------------------------------------------------------------------

    def _run(self, incoming: Iterable[bytes] | None) -> Iterator[tuple[int, bytes]]:
        buffer = None if incoming is None else self._collect(incoming)
        if buffer is not None and buffer.failed:
            self._failed = True
            return
        if self.order.opens:
            self._open_state()
            return
        services = Services(
            self.job, self.stage, self.partition, self.order, self.attempt, self._pool, self._observe, self._earlier
        )
        whole = False
        try:
            self._build(services)
            now = self.order.processing_time
            for operator in self._operators.values():
                operator.pass_time("clock", now, partial(operator.on_processing_time, now))
            if not self._lap:
                self._loops.begin()
            for _ in self._read_sources() if buffer is None else self._consume(buffer, services.rounds):
                yield from self._writer.take()
            for _ in self._loops.turn():
                yield from self._writer.take()
            turned = self.order.final
            while turned:
                turned = False
                for operator in self._operators.values():
                    operator.pass_time("end", None, operator.on_end)
                for _ in self._loops.turn():
                    turned = True
                    yield from self._writer.take()
            fail_point("task:prepare")
            for operator in self._operators.values():
                operator.busy_with(operator.finish)
            self._finish(services)
            yield from self._writer.take()
            whole = True
        except ShortOfBoundError as error:
            self._failed, self._report.short = True, error.clock
            yield from self._writer.take()
        except PenstockError as error:
            if isinstance(error, StorageError):
                raise
            self._fail(error)
            yield from self._writer.take()
        finally:
            for operator in self._operators.values():
                if operator.observer is not None:
                    operator.observer.on_close()
            for keyed in services.keyed:
                keyed.close()
            services.committed.close()
            self._loops.close()
            if buffer is not None:
                buffer.close()
            if not whole:
                self._abort(functions=self._report.short is None)

    def _open_state(self) -> None:
        committed = CommittedState(self.job, self.stage, self.partition, self.order)
        try:
            committed.reads()
            open_stores(self.job, self.stage, self.partition, self.order)
        except PenstockError as error:
            if isinstance(error, StorageError):
                raise
            self._fail(error)
        finally:
            committed.close()
        self._report.origin = committed.origin

    def _collect(self, incoming: Iterable[bytes]) -> FrameBuffer:
        """Take in every frame and make sure that they are all there."""
        buffer = FrameBuffer()
        trailers: dict[int, Trailer] = {}
        counts: dict[int, int] = defaultdict(int)
        for data in incoming:
            if is_trailer(data):
                trailer = decode_trailer(data)
                trailers[trailer.upstream] = trailer
            else:
                frame = Frame(data)
                counts[frame.upstream] += 1
                if is_changes(data):
                    self._earlier = decode_changes(data)
                else:
                    buffer.add(frame)
        check_whole(trailers, counts, self.job.parallelism, f"stage {self.stage.index}, partition {self.partition}")
        self._report.consumed = {u: trailer.attempt for u, trailer in sorted(trailers.items())}
        self._report.upstream = [trailer.report for _, trailer in sorted(trailers.items()) if trailer.report]
        buffer.trailers = trailers
        self._beside = trailers.get(self.partition)
        self._latest = max((trailer.latest for trailer in trailers.values()), default=MIN_WATERMARK)
        buffer.failed = any(trailer.failed for trailer in trailers.values())
        return buffer

    def _build(self, services: Services) -> None:
        for step in self.stage.steps:
            known = len(services.keyed)
            operator = self._operators[step.step] = step.definition.build(step.step, services, step.inputs)
            operator.states = services.keyed[known:]
            operator.ordered = step.ordered
            operator.updates = step.updates
            if step.in_turn:
                self._merged[step.step] = MergedInputs(operator, step.inputs)
            if isinstance(operator, SourceOperator):
                operator.paced = step.paced
        self._loops = Loops(self._operators)
        for step in self.stage.steps:
            for local in step.local:
                self._connect(local.step, local.tag, self._entry(step.step, local.port))
        for channel in self.stage.channels_out:
            writer = self._channel_writer(channel, services)
            self._channels_out.append(writer)
            if channel.relay_of is None:
                self._connect(channel.step, channel.tag, writer)

        if self._more:
            self._loops.lap({channel.index: self._channel_writer(channel, services) for channel in self.stage.channels_in})

    def _channel_writer(self, channel: Channel, services: Services) -> ChannelWriter:
        return ChannelWriter(
            channel,
            self._writer,
            partition=self.partition,
            codec=key_codec(channel.exchange.key_type),
            key_groups=self.job.key_groups,
            watermark=self.order.watermarks.get(channel.step, MIN_WATERMARK),
            rounds=services.rounds,
        )

    def _connect(self, step: StepId, tag: str | None, receiver: Receiver) -> None:
        outputs = self._operators[step].outputs
        (outputs.main if tag is None else outputs.side.setdefault(tag, [])).append(receiver)

    def _entry(self, step: StepId, port: int) -> Port:
        if step in self._merged:
            return MergedPort(self._merged[step], port)
        inputs = next(s.inputs for s in self.stage.steps if s.step == step)
        return (Port if inputs == 1 else JoinedPort)(self._operators[step], port)

    def _ways(self, channel: Channel, buffer: FrameBuffer, rounds: Rounds) -> Ways:
        ends = [self._entry(step, port) for step, port in channel.ends]
        relays = [writer for writer in self._channels_out if writer.channel.relay_of == channel.index]
        return Ways(channel.index, channel.loop, rounds, buffer, self.job.parallelism, self._rows, ends, relays)

    def _read_sources(self) -> Iterator[None]:
        sources = [operator for operator in self._operators.values() if isinstance(operator, SourceOperator)]
        for source in sources:
            source.busy_with(source.begin)
        yield from self._read_in_order([source for source in sources if source.paced])
        yield from self._read_by_batches([source for source in sources if not source.paced])
        self._settle()
        for source in sources:
            if source.paced:
                source.busy_with(source.rest)
                self._latest = max(self._latest, MIN_WATERMARK if source.last is None else source.last)
        for source in sources:
            source.busy_with(source.end)
            self._report.clocks[source.step] = {partition: clock.state() for partition, clock in source.clocks.items()}
            if source.paced:
                self._report.reached[source.step] = source.reached()
        yield

    def _settle(self) -> None:
        """All records of the epoch have come in."""
        for step, operator in self._operators.items():
            if step in self._merged:
                self._merged[step].flush()
            operator.busy_with(operator.settle)

    def _read_in_order(self, sources: list[SourceOperator]) -> Iterator[None]:
        """The source partition that is most behind is read first; what is complete is passed on in rounds."""
        lanes = [lane for source in sources for lane in source.lanes.values()]
        for source in sources:
            source.busy_with(source.open)
        try:
            while unread := [lane for lane in lanes if not lane.finished]:
                fail_point("task:read")
                min(unread, key=lambda lane: lane.clock.watermark).read()
                if sum(lane.waiting.rows for lane in lanes) >= ROUND_ROWS:
                    horizon = min((lane.clock.watermark for lane in lanes if not lane.finished), default=END)
                    for source in sources:
                        source.busy_with(source.pass_on, horizon)
                    yield
            for source in sources:
                source.busy_with(source.pass_on, END)
            yield
        finally:
            for source in sources:
                source.close()

    def _read_by_batches(self, sources: list[SourceOperator]) -> Iterator[None]:
        runs = {number: source.batches() for number, source in enumerate(sources)}
        due = {number: sources[number].busy_with(next, run, None) for number, run in runs.items()}
        while True:
            waiting = [(when, number) for number, when in due.items() if when is not None]
            if not waiting:
                break
            number = min(waiting)[1]
            fail_point("task:read")
            due[number] = sources[number].busy_with(next, runs[number], None)
            yield

    def _consume(self, buffer: FrameBuffer, rounds: Rounds) -> Iterator[None]:
        """Feed the frames by (watermark, lane, upstream, sequence); time advances as the least upstream does. Where order is
        seen, they are merged in rounds."""
        ways = {c.index: self._ways(c, buffer, rounds) for c in self.stage.channels_in}
        self._loops.know(self.stage.channels_in, ways)
        inlets = {c.index: Inlet(ways[c.index]) for c in self.stage.channels_in if not c.ordered}
        ordered = {c.index: OrderedInlet(ways[c.index]) for c in self.stage.channels_in if c.ordered}
        if self._lap:
            onward = {writer.channel.index: writer for writer in self._channels_out}
            for frame in buffer.take(onward):
                onward[frame.channel].relay(frame)
                yield
        for inlet in inlets.values():
            inlet.start()
        for frame in buffer.in_order():
            fail_point("task:frame")
            if frame.channel in inlets:
                inlets[frame.channel].take(frame)
            else:
                if sum(inlet.rows for inlet in ordered.values()) >= ROUND_ROWS:
                    pass_on(ordered.values(), frame.watermark)
                ordered[frame.channel].take(frame)
            yield
        pass_on(ordered.values(), END)
        self._settle()
        for operator in self._operators.values():
            operator.latest = self._latest
        for last in ordered.values():
            last.end()
        yield

    def _finish(self, services: Services) -> None:
        report = self._report
        parts = []
        for operator in self._operators.values():
            for part in operator.states:
                parts.append(operator.busy_with(operator.changes, part))
                report.next_due.update(part.next_due())
        report.copies = {step: copy.digest for step, copy in services.copies.items()}
        place = (self.stage.index, self.partition)
        if self._earlier is not None or self._more:
            parts = [with_earlier(self._earlier, parts)]
        if self._more:
            self._writer.send_changes(LapChanges(entries=list(parts[0]), next_due=report.next_due))
        else:
            report.state, report.delta = write_changes(self.job, self.order, place, self.attempt, parts, services.committed)
        if not self._more:
            report.upstream += [encode_report(stored) for stored in self._loops.reports()]
        report.loops = {str(loop): known for loop, known in services.loops.items()}
        report.origin = services.committed.origin
        if services.committed.store is not None and not self._more:
            report.entries = services.committed.store.entries()
        for step in self.stage.steps:
            operator = self._operators[step.step]
            if step.step in services.committables:
                committable = services.committables[step.step]
                if isinstance(step.definition, SinkStep) and step.definition.sink.volatile:
                    report.volatile[step.step] = committable
                else:
                    report.committables[step.step] = committable
            (report.resting if operator.idle else report.watermarks)[step.step] = operator.watermark
            context = services.contexts.get(step.step)
            report.metrics[step.step] = StepMetrics(
                records_in=operator.records_in,
                records_out=operator.outputs.emitted,
                skipped=operator.skipped,
                dead_letters=operator.dead_letters,
                busy_s=round(operator.busy_s, 6),
                counters=dict(context.counters) if context is not None else {},
            )
        report.warnings = {str(step): text for step, text in services.warnings.items()}
        report.seconds = time.perf_counter() - self._started

    def _fail(self, error: PenstockError) -> None:
        self._failed = True
        self._report.failure = Failure(
            kind=type(error).__name__,
            what=error.what,
            detail=error.detail,
            hint=error.hint,
            trace="".join(traceback.format_exception(error)),
            frames=folded(error),
            nature=nature_of(error),
        )

    def _abort(self, *, functions: bool) -> None:
        """Throw away what this attempt staged, and the functions, if it may have left them in a strange state."""
        for operator in self._operators.values():
            operator.abort()
        if functions:
            self._pool.discard(self.partition)


def check_whole(trailers: Mapping[int, Trailer], counts: Mapping[int, int], upstreams: int, where: str) -> None:
    """Raise `EpochFailedError` unless every upstream task ended its stream, and as many frames came as it sent."""
    missing = [upstream for upstream in range(upstreams) if upstream not in trailers]
    torn = [u for u, trailer in trailers.items() if trailer.frames != counts.get(u, 0)]
    if missing or torn:
        raise EpochFailedError(
            f"{where}: the input is not whole",
            detail=f"no trailer from upstream tasks {missing}; frames missing from {torn}",
            hint="a fetch failed half-way; the task is tried again",
        )
