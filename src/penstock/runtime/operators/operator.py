"""What every operator is, and how operators are wired."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from penstock.contexts import Sides
from penstock.diagnosis.tracebacks import innermost
from penstock.errors import CorruptFileError, PenstockError, ReturnedValueError, StateError, UserCodeError
from penstock.functions import function_location
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds, StepId
from penstock.plan.definition import DEAD_LETTERS as DEAD_LETTERS
from penstock.plan.definition import ErrorPolicy
from penstock.records import NO_TIMESTAMP, Batch, Records
from penstock.runtime.operators.observer import InvocationKind, Observer, StateChange, TimeKind
from penstock.runtime.ordering import sliced
from penstock.timing.valve import Valve

if TYPE_CHECKING:
    from penstock.runtime.frames import Payload
    from penstock.runtime.services import Services, StatePart

R = TypeVar("R")

Ports = npt.NDArray[np.intp]
"""By record, the number of the input that it came in at."""


class DeadLetter(msgspec.Struct, frozen=True):
    """A record that a user's function raised on."""

    step: str
    function: str
    error: str
    record: Any
    timestamp_ms: int | None = None


class Receiver(Protocol):
    """Takes batches and watermarks; a watermark of None says: idle."""

    def on_batch(self, batch: Any) -> None: ...

    def on_watermark(self, watermark: Milliseconds | None) -> None: ...


class Outputs:
    """Where an operator's main output and side outputs go."""

    __slots__ = ("emitted", "main", "no_later", "observer", "side")

    def __init__(self) -> None:
        self.observer: Observer | None = None
        self.no_later: Milliseconds | None = None
        """Later ticks count as this."""
        self.main: list[Receiver] = []
        self.side: dict[str, list[Receiver]] = {}
        self.emitted = 0

    def emit(self, batch: Batch) -> None:
        size = len(batch)
        if size:
            self.emitted += size
            if self.observer is not None:
                self.observer.on_emit(None, batch)
            if self.no_later is not None and batch.ticks is not None:
                batch = batch.with_ticks(np.minimum(batch.ticks, self.no_later))
            for receiver in self.main:
                receiver.on_batch(batch)

    def emit_side(self, tag: str, batch: Batch) -> None:
        if self.observer is not None and len(batch):
            self.observer.on_emit(tag, batch)
        for receiver in self.side.get(tag, ()):
            receiver.on_batch(batch)

    def emit_sides(self, sides: Sides) -> None:
        for tag, (values, times, ticks, *kinds) in sides.items():
            known = np.asarray(ticks, dtype=np.int64)
            if self.no_later is not None:
                np.minimum(known, self.no_later, out=known)
            codes = np.asarray(kinds[0], dtype=np.int8) if kinds else None
            self.emit_side(tag, Records(values, np.asarray(times, dtype=np.int64), known, codes))

    def watermark(self, watermark: Milliseconds | None) -> None:
        for receiver in self.main:
            receiver.on_watermark(watermark)
        for receivers in self.side.values():
            for receiver in receivers:
                receiver.on_watermark(watermark)


class Operator:
    """Logic of one step in one task. Input comes through a port (`penstock.runtime.ports`); what else it does, the task has it
    do by `busy_with`, or `pass_time`."""

    observed: ClassVar[frozenset[InvocationKind]] = frozenset()
    """The invocations that an observer sees, besides what comes in and goes out."""

    def __init__(self, step: StepId, services: Services, inputs: int = 1) -> None:
        self.step = step
        self.services = services
        self.outputs = Outputs()
        self.watermark: Milliseconds = services.start_watermark(step)
        self.valve = Valve(inputs, self.watermark)
        self.latest: Milliseconds = MIN_WATERMARK
        """The latest clock of any source partition of the job."""
        self.idle = False
        self.ordered = False
        """A step that sees order follows: what goes out has ticks."""
        self.updates = False
        """Its output is a stream that updates: what goes out has kinds."""
        self.errors: ErrorPolicy = "fail"
        self.records_in = 0
        self.skipped = 0
        self.dead_letters = 0
        self.busy_s = 0.0
        """How long it has been running, not counting the operators that it handed batches to meanwhile."""
        self.states: list[StatePart] = []
        self.observer = self.outputs.observer = None if services.observe is None else services.observe(self)

    # --- how it is entered -------------------------------------------------------------------------------------------------

    def busy_with(self, action: Callable[..., R], *arguments: Any) -> R:
        """Do something on this operator's time."""
        stopwatch = self.services.stopwatch
        outer = stopwatch.switch(self)
        result = action(*arguments)
        stopwatch.switch(outer)
        return result

    def enter(self, port: int, batch: Any) -> None:
        """A batch comes in at one of its inputs."""
        if self.observer is None:
            self.busy_with(self.on_input, port, batch)
        else:
            self.busy_with(self.observer.on_batch, port, batch, partial(self.on_input, port, batch))

    def pass_time(self, kind: TimeKind, time: Milliseconds | None, action: Callable[[], None]) -> None:
        """Time passes; the action says so to the operator."""
        if self.observer is None:
            self.busy_with(action)
        else:
            self.busy_with(self.observer.on_time, kind, time, action)

    def changes(self, part: StatePart) -> list[StateChange] | Iterator[StateChange]:
        """What the epoch changes of a part of its state."""
        changes = part.changes()
        if self.observer is not None:
            changes = list(changes)
            self.observer.on_changes(changes)
        return changes

    # --- what happens ------------------------------------------------------------------------------------------------------

    def on_batch(self, batch: Payload) -> None:
        raise NotImplementedError

    def on_input(self, port: int, batch: Any) -> None:
        """A batch of one of several inputs."""
        self.on_batch(batch)

    def on_merged(self, batches: dict[int, Any], ports: Ports) -> None:
        """Batches of several inputs, to be taken in turn: `ports` says of each record where it is from. By default run by run."""
        taken = dict.fromkeys(batches, 0)
        for start, stop in pairwise([0, *(np.flatnonzero(np.diff(ports)) + 1).tolist(), len(ports)]):
            port = int(ports[start])
            begin, taken[port] = taken[port], taken[port] + stop - start
            self.enter(port, sliced(batches[port], begin, taken[port]))

    def on_watermark(self, watermark: Milliseconds | None) -> None:
        """Single input: take it as it is, as long as it does not go back.

        Time that stands still fires nothing: an epoch begins with the watermark that the last one ended with.
        """
        self.idle = watermark is None
        if watermark is None:
            self.outputs.watermark(None)
        elif watermark >= self.watermark:
            if watermark > self.watermark:
                if watermark == MAX_WATERMARK and self.watermark < self.latest:
                    self.outputs.no_later = self.watermark  # time ends here, and goes on elsewhere
                self.advance(watermark)
            self.outputs.watermark(watermark)

    def advance(self, watermark: Milliseconds) -> None:
        """Event time is `watermark` now."""
        self.watermark = watermark

    def look_ahead(self, limit: Milliseconds) -> None:
        """Event time gets to `limit` in this epoch, or near it."""

    def on_processing_time(self, now: Milliseconds) -> None:
        """Processing time is `now`, before the epoch's records."""

    def settle(self) -> None:
        """All records of the epoch have come: emit what of them is still held, but for what waits for time."""

    def on_end(self) -> None:
        """All input has ended for good."""

    def finish(self) -> None:
        """The epoch's input is over: make everything ready to be collected."""

    def abort(self) -> None:
        """The epoch has failed: throw away what was made ready, and stop what is under way."""

    def set_aside(self, error: Exception, function: Any, record: Any, time: Milliseconds) -> None:
        """A record that a step skips, or sends to its dead letters."""
        if isinstance(error, ReturnedValueError):  # the function is wrong, not the record
            raise error
        if self.errors != "dead_letter":
            self.skipped += 1
        else:
            self.dead_letters += 1
            letter = DeadLetter(
                step=self.step,
                function=function_location(function),
                error=f"{type(error).__name__}: {error}",
                record=record,
                timestamp_ms=None if time == NO_TIMESTAMP else time,
            )
            self.outputs.emit_side(DEAD_LETTERS, Records([letter], np.asarray([time], dtype=np.int64)))

    def user_error(self, error: Exception, function: Any, record: Any, *, doing: str = "") -> PenstockError:
        """The error to raise for what a user's function raised."""
        place = innermost(error)
        if isinstance(error, StateError) and not isinstance(error, CorruptFileError):
            where = "" if f"step {self.step!r}" in error.what else f"step {self.step!r}: "
            raised = f"raised at: {place}\n" if place else ""
            detail = f"{error.detail}\n{raised}record: {record!r:.500}".lstrip("\n")
            return type(error)(where + error.what, detail=detail, hint=error.hint)
        if isinstance(error, ReturnedValueError) or (isinstance(error, PenstockError) and not isinstance(error, UserCodeError)):
            return error
        return UserCodeError(
            f"step {self.step!r}: {type(error).__name__}: {error}" + (f" ({doing})" if doing else ""),
            detail=f"function: {function_location(function)}\n"
            + (f"raised at: {place}\n" if place else "")
            + f"record: {record!r:.500}",
            hint='mend the function or the input; errors="skip" or errors="dead_letter" on the step let the others pass',
        )


def method_of(function: Any, name: str) -> Callable[..., Any]:
    """The method of a function class, or the plain function itself."""
    method: Callable[..., Any] = getattr(function, name, function)
    return method
