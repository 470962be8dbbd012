"""Combination of watermarks of several inputs.

Laws:
- The combined watermark is the least of the inputs that count, and never goes back. An input counts while it is active; one that
  wakes up counts again once it has reached the combined watermark.
- When the last active input falls idle and it was the one that held time back, time goes on to where the furthest input was: it
  does not matter in which order inputs fall idle.
- The end of time is not reached before every input has reached it: one that is idle may wake up.
"""

from __future__ import annotations

from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Milliseconds


class Valve:
    """Watermarks of several inputs, as one. Methods tell whether the combined watermark advanced."""

    __slots__ = ("_active", "_counted", "_marks", "watermark")

    def __init__(self, inputs: int, watermark: Milliseconds = MIN_WATERMARK) -> None:
        self._marks = [watermark] * inputs
        self._active = [True] * inputs
        self._counted = [True] * inputs
        self.watermark = watermark

    @property
    def idle(self) -> bool:
        """Are all inputs idle?"""
        return not any(self._active)

    def take(self, which: int, watermark: Milliseconds | None) -> bool:
        """What an operator is told of an input: its watermark, or None: it is idle."""
        if watermark is None:
            return self.fall_idle(which)
        self.wake(which)
        return self.advance(which, watermark)

    def advance(self, which: int, watermark: Milliseconds) -> bool:
        """The input is at `watermark`. That of an idle input means nothing."""
        if not self._active[which] or watermark <= self._marks[which]:
            return False
        self._marks[which] = watermark
        self._counted[which] = self._counted[which] or watermark >= self.watermark
        return self._counted[which] and self._least()

    def fall_idle(self, which: int) -> bool:
        if not self._active[which]:
            return False
        self._active[which] = self._counted[which] = False
        if not self.idle:
            return self._least()
        return self._marks[which] == self.watermark and self._reach(max(self._marks))

    def wake(self, which: int) -> None:
        if not self._active[which]:
            self._active[which] = True
            self._counted[which] = self._marks[which] >= self.watermark

    def counts(self, which: int) -> bool:
        """Does the input have a say in the combined watermark?"""
        return self._counted[which]

    def watermark_of(self, which: int) -> Milliseconds:
        return self._marks[which]

    def _least(self) -> bool:
        counted = [mark for mark, counts in zip(self._marks, self._counted, strict=True) if counts]
        return bool(counted) and self._reach(min(counted))

    def _reach(self, watermark: Milliseconds) -> bool:
        if watermark <= self.watermark or (watermark == MAX_WATERMARK and min(self._marks) < MAX_WATERMARK):
            return False
        self.watermark = watermark
        return True
