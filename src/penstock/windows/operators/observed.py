"""Window operators that report to an observer: records and timers or, where batches are taken whole, windows that fire."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from penstock.ids import Milliseconds, StepId
from penstock.runtime.operators.observer import Invocation, InvocationKind, Observer
from penstock.runtime.services import Services
from penstock.state.encoding.keys import key_codec
from penstock.state.overlay.keyed import Slot
from penstock.windows.operators.aligned import AlignedOperator
from penstock.windows.operators.operator import WindowOperator
from penstock.windows.step import WindowStep
from penstock.windows.window import WINDOW_SIZE, TimeWindow, decode_window

R = TypeVar("R")


class ObservedWindowOperator(WindowOperator):
    """Record by record."""

    observed = frozenset(("record", "timer"))
    observer: Observer

    def __init__(self, step: StepId, services: Services, definition: WindowStep) -> None:
        super().__init__(step, services, definition)
        self._decode = key_codec(definition.key_type).decode

    def _on_record(self, key: bytes, record: Any, time: Milliseconds) -> bool:
        one = Invocation("record", record, time, self.watermark, key=self._decode(key), encoded=key)

        def proceed() -> bool:
            taken = _noting(self, one, partial(WindowOperator._on_record, self, key, record, time))
            slot, one.late = self.windows.slot, not taken
            if one.late and self.spec.late is not None:
                one.emitted.append((record, time, self.spec.late))
            if taken and slot.encoded and not self.spec.assigner.merging:
                one.window, one.slot = decode_window(slot.encoded), slot
                one.handles = {name: handle for name, handle in self.handles.items() if handle in self.windows.handles}
            return taken

        return self.observer.on_call(one, proceed)

    def _on_timer(self, time: Milliseconds, slot: Slot, window: TimeWindow, domain: str) -> None:
        one = _about(self, "timer", time, time, slot, window)
        one.domain = domain
        action = partial(WindowOperator._on_timer, self, time, slot, window, domain)
        self.observer.on_call(one, partial(_noting, self, one, action))


class ObservedAlignedOperator(AlignedOperator):
    """A batch at a time: what a record does is not known, what a window emits is."""

    observed = frozenset(("window",))
    observer: Observer

    def _fire(self, slot: Slot, home: Slot, window: TimeWindow, *, stays: bool) -> None:
        one = _about(self, "window", None, window.max_timestamp, slot, window)
        action = partial(AlignedOperator._fire, self, slot, home, window, stays=stays)
        self.observer.on_call(one, partial(_noting, self, one, action))


def _about(
    operator: WindowOperator, kind: InvocationKind, value: Any, time: Milliseconds, slot: Slot, window: TimeWindow
) -> Invocation:
    key, encoded = operator.windows.key_of(slot), slot.encoded[:-WINDOW_SIZE]
    return Invocation(kind, value, time, operator.ctx.current_watermark, key=key, encoded=encoded, window=window)


def _noting(operator: WindowOperator, one: Invocation, action: Callable[[], R]) -> R:
    """Act, and note what was emitted."""
    start, mark = len(operator._out), operator.ctx.side_mark()
    result = action()
    one.emits(zip(operator._out[start:], operator._times[start:], strict=True), operator.ctx, mark)
    return result
