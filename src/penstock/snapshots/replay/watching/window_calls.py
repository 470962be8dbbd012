"""Windows that are watched: record by record where the operator takes them so, otherwise when they fire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.ids import Milliseconds
from penstock.runtime.services import Services
from penstock.snapshots.replay.result import Emitted, Event
from penstock.snapshots.replay.watching.calls import call_watched, sides_since
from penstock.snapshots.replay.watching.peeking import duplicate, peek
from penstock.snapshots.replay.watching.trace import StepTrace
from penstock.windows.window import WINDOW_SIZE, decode_window


def watch_windows(operator: Any, services: Services, trace: StepTrace) -> None:
    on_record, on_timer = operator._on_record, operator._on_timer
    merging, late = operator.spec.assigner.merging, operator.spec.late

    def observed(event: Event, key: bytes, kept: bool, stop: bool, action: Callable[..., Any], *arguments: Any) -> Any:
        start, mark = len(operator._out), operator.ctx.side_mark()
        try:
            result = call_watched(trace, stop, action, event, *arguments)
        except Exception as error:
            trace.failed(event, error, key)
            raise
        if kept:
            made = zip(operator._out[start:], operator._times[start:], strict=True)
            event.outputs = [Emitted(duplicate(value), time) for value, time in made] + sides_since(operator.ctx, mark)
            trace.keep(event)
        return result

    def record(key: bytes, value: Any, time: Milliseconds) -> bool:
        trace.entered(services)
        kept, stop = trace.keeps(key), trace.stops(key)
        event = trace.event("record", operator.watermark, key=operator.windows._key_codec.decode(key), value=value, time=time)
        taken: bool = observed(event, key, kept, stop, on_record, key, value, time)
        event.late = not taken
        if late is not None and not taken:
            event.outputs.append(Emitted(event.value, event.timestamp_ms, late))
        if kept and taken and not merging and operator.windows.slot.encoded:
            slot = operator.windows.slot
            event.window = _window(slot.encoded)
            event.after = peek(_handles(operator), slot)
        return taken

    def timer(time: Milliseconds, slot: Any, window: Any, domain: str) -> None:
        trace.entered(services)
        encoded = slot.encoded[:-WINDOW_SIZE]
        trace.fired(encoded)
        kept, stop = trace.keeps(encoded), trace.stops(encoded)
        event = trace.event(
            "timer",
            operator.ctx.current_watermark,
            key=operator.windows.key_of(slot),
            value=time,
            time=time,
            window=(window.start, window.end),
            domain=domain,
        )
        observed(event, encoded, kept, stop, on_timer, time, slot, window, domain)

    operator._on_record, operator._on_timer = record, timer


def _handles(operator: Any) -> dict[str, Any]:
    return {name: handle for name, handle in operator.handles.items() if handle in operator.windows.handles}


def _window(encoded: bytes) -> tuple[int, int]:
    window = decode_window(encoded)
    return window.start, window.end


def watch_windows_at_a_time(operator: Any, services: Services, trace: StepTrace) -> None:
    """Records come by the batch; a window that fires is an event of its own."""
    fire = operator._fire

    def fired(slot: Any, home: Any, window: Any, *, stays: bool) -> None:
        trace.entered(services)
        trace.fired(slot.encoded[:-WINDOW_SIZE])
        start = len(operator._out)
        fire(slot, home, window, stays=stays)
        if len(operator._out) > start and trace.keeps(slot.encoded[:-WINDOW_SIZE]):
            event = trace.event(
                "window",
                operator.ctx.current_watermark,
                key=operator.windows.key_of(slot),
                time=window.max_timestamp,
                window=(window.start, window.end),
            )
            made = zip(operator._out[start:], operator._times[start:], strict=True)
            event.outputs = [Emitted(duplicate(value), time) for value, time in made]
            trace.keep(event)

    operator._fire = fired
