"""What `window(...)` was told: a frozen value that the plan can inspect."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.errors import PlanError
from penstock.ids import MAX_WATERMARK, Milliseconds
from penstock.windows.assigners import WindowAssigner
from penstock.windows.evictors import Evictor
from penstock.windows.triggers import Trigger
from penstock.windows.window import TimeWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpec:
    """Windows, when they are emitted, what they leave out, and what becomes of late records."""

    assigner: WindowAssigner
    trigger: Trigger
    evictor: Evictor | None = None
    allowed_lateness_ms: Milliseconds = 0
    late: str | None = None

    def __post_init__(self) -> None:
        for value, kind, example in (
            (self.assigner, WindowAssigner, "TumblingWindows(minutes=5)"),
            (self.trigger, Trigger, "trigger=CountTrigger(100)"),
            (self.evictor, Evictor, "evictor=CountEvictor(10)"),
        ):
            if isinstance(value, type):
                raise PlanError(f"window({value.__name__}): this is a class", hint=f"give an instance, for example {example}")
            if value is not None and not isinstance(value, kind):
                raise PlanError(f"{value!r} is not a {kind.__name__}", hint=f"for example {example}")
        if self.assigner.merging and not self.trigger.merges:
            raise PlanError(
                f"{self.trigger!r} does not work for windows that merge",
                hint="a trigger for session windows says merges = True and sets its timers in on_merge",
            )

    def cleanup_time(self, window: TimeWindow) -> Milliseconds:
        """When the window is dropped; at the end of time: never."""
        last = window.max_timestamp
        return min(last + self.allowed_lateness_ms, MAX_WATERMARK) if self.assigner.event_time else last

    def describe(self) -> dict[str, str]:
        """For explain."""
        shown = {"windows": self.assigner.describe(), "trigger": self.trigger.describe()}
        if self.evictor is not None:
            shown["evictor"] = self.evictor.describe()
        if self.assigner.event_time:
            where = "are dropped, and counted" if self.late is None else f"go to the side output {self.late!r}, and are counted"
            shown["late records"] = f"update a window for {self.allowed_lateness_ms} ms after its end; later ones {where}"
        return shown
