"""Combination of watermarks: the minimum over those inputs that are active, and it never goes back.

The end of time is not reached before every input has reached it: one that is idle may wake up.
"""

from __future__ import annotations

from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds


class Valve:
    """Watermarks of several inputs, as one."""

    __slots__ = ("_inputs", "watermark")

    def __init__(self, inputs: int, watermark: Milliseconds = MIN_WATERMARK) -> None:
        self._inputs: list[Milliseconds | None] = [watermark] * inputs
        self.watermark = watermark

    def advance(self, which: int, watermark: Milliseconds | None) -> bool:
        """Input `which` is at `watermark` now (None: it is idle). Did the combined watermark advance?"""
        before = self._inputs[which]
        if watermark is not None and before is not None and watermark < before:
            return False
        self._inputs[which] = watermark
        active = [w for w in self._inputs if w is not None]
        if not active:
            return False
        combined = min(active)
        if combined <= self.watermark or (combined == MAX_WATERMARK and len(active) < len(self._inputs)):
            return False
        self.watermark = combined
        return True

    @property
    def idle(self) -> bool:
        return all(w is None for w in self._inputs)
