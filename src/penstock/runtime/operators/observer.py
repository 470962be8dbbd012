"""Watching an operator from outside: what it takes, which functions it invokes, what it emits.

Laws:
- An observed operator does exactly what it would do unobserved: its batches are not cut differently (a `rebalance` behind it
  would deal them out differently), and its functions get the same objects. An observer does not read state through its handles:
  that would be noted.
- Unobserved, it pays nothing per record: what it calls is the function itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from penstock.contexts import ProcessContext, Timers
from penstock.ids import Milliseconds
from penstock.timing.durations import time_ms

if TYPE_CHECKING:
    from penstock.records import Batch
    from penstock.runtime.operators.operator import Ports
    from penstock.state.overlay.keyed import KeyedState, Slot

R = TypeVar("R")

InvocationKind = Literal["record", "timer", "window", "batch"]
"""What an invocation is about: a record, a timer or a window that fires, a batch that goes to a user's function."""

TimeKind = Literal["watermark", "clock", "end"]
"""How time passes: by a watermark, by the processing time of an epoch, by the end of all input."""

StateChange = tuple[bytes, bytes | None]


@dataclass(slots=True)
class Invocation:
    """An operator acts on a record or a timer, mostly by calling a user's function. `encoded` is the key as bytes."""

    kind: InvocationKind
    value: Any
    time: Milliseconds
    watermark: Milliseconds
    key: Any = None
    encoded: bytes | None = None
    domain: str | None = None
    window: tuple[Milliseconds, Milliseconds] | None = None
    slot: Slot | None = None
    handles: Mapping[str, Any] = field(default_factory=dict)
    """The state in `slot` that it may read. Of a record's window both are known when it is over."""
    late: bool = False
    emitted: list[tuple[Any, Milliseconds, str | None]] = field(default_factory=list)
    """Known when it is over: value, timestamp, and the tag of a side output."""

    def emits(self, made: Iterable[tuple[Any, Milliseconds]], ctx: ProcessContext | None, mark: Mapping[str, int]) -> None:
        """It is over: it has made this, and written to side outputs since the mark."""
        self.emitted = [(value, time, None) for value, time in made]
        if ctx is not None:
            for tag, (values, times, *_) in ctx._side.items():
                start = mark.get(tag, 0)
                self.emitted += [(value, time, tag) for value, time in zip(values[start:], times[start:], strict=True)]


class Observer:
    """Watches one operator in one task. `proceed` is what the operator does about it: call it once, and return its result.

    `one_by_one`: a function is to be called inside `proceed`, in this thread, even where many calls would be awaited together.
    """

    one_by_one = False

    def on_batch(self, port: int | Ports, batch: Any, proceed: Callable[[], None]) -> None:
        """A batch comes in; of several inputs, whose records are taken in turn, `port` says of each record where it is from."""
        proceed()

    def on_time(self, kind: TimeKind, time: Milliseconds | None, proceed: Callable[[], None]) -> None:
        """Time passes; a watermark of None: the input is idle."""
        proceed()

    def on_call(self, invocation: Invocation, proceed: Callable[[], R]) -> R:
        """The operator acts on one thing of what came in: of the kinds in its `observed`."""
        return proceed()

    def on_timer(self, time: Milliseconds, domain: str, deleted: bool) -> None:
        """The user's function sets or deletes a timer."""

    def on_emit(self, tag: str | None, batch: Batch) -> None:
        """A batch goes out, to the main output or a side output."""

    def on_changes(self, changes: list[StateChange]) -> None:
        """What the epoch changes of the operator's state, before it is committed."""

    def on_close(self) -> None:
        """The task is over, or has failed; the state from before it can still be read."""


class ObservedTimers(Timers):
    """The timers of the current key, as the user's function has them."""

    __slots__ = ("_observer",)

    def __init__(self, keyed: KeyedState, ctx: ProcessContext, observer: Observer) -> None:
        super().__init__(keyed, ctx)
        self._observer = observer

    def register_event_time(self, time: Any) -> None:
        super().register_event_time(time)
        self._tell(time, "event", False)

    def delete_event_time(self, time: Any) -> None:
        super().delete_event_time(time)
        self._tell(time, "event", True)

    def register_processing_time(self, time: Any) -> None:
        super().register_processing_time(time)
        self._tell(time, "processing", False)

    def delete_processing_time(self, time: Any) -> None:
        super().delete_processing_time(time)
        self._tell(time, "processing", True)

    def _tell(self, time: Any, domain: str, deleted: bool) -> None:
        self._observer.on_timer(time if type(time) is int else time_ms(time), domain, deleted)
