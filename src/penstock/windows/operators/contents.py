"""What a window holds: an accumulator, or its records. Works on the slot it is given."""

from __future__ import annotations

import copy
from typing import Any

from penstock.ids import Milliseconds
from penstock.records import NO_TIMESTAMP
from penstock.state.overlay.keyed import KeyedState, Slot
from penstock.windows.evictors import Element
from penstock.windows.functions import WindowContext
from penstock.windows.incremental import Incremental


class Accumulated:
    """An accumulator for each window."""

    def __init__(self, keyed: KeyedState, handle: Any, incremental: Incremental) -> None:
        self._keyed = keyed
        self.handle = handle
        self.incremental = incremental
        self._timed = incremental.timed

    def add(self, slot: Slot, value: Any, time: Milliseconds) -> None:
        self._keyed.slot = slot
        handle = self.handle
        if self._timed:
            handle.update(self.incremental.add_at(handle.value, value, time))
        else:
            handle.update(self.incremental.add(handle.value, value))

    def held(self, slot: Slot) -> Any:
        """What the window holds; None if it is empty."""
        self._keyed.slot = slot
        return self.handle.value

    def values(self, held: Any, ctx: WindowContext[Any], *, stays: bool) -> list[Any]:
        """What the window function sees. If the window `stays`, that is none of what it holds."""
        result = self.incremental.emitted(held, ctx)
        return [copy.deepcopy(result) if stays and result is held else result]

    def clear(self, slot: Slot) -> None:
        self._keyed.slot = slot
        self.handle.clear()

    def move(self, sources: list[Slot], target: Slot) -> None:
        """Make the contents of several windows those of one."""
        for source in sources:
            held = self.held(source)
            if held is None:
                continue
            self.handle.clear()
            there = self.held(target)
            self.handle.update(held if there is None else self.incremental.merge(there, held))


class Buffered:
    """The records of each window, with their timestamps."""

    def __init__(self, keyed: KeyedState, handle: Any, incremental: Incremental | None) -> None:
        self._keyed = keyed
        self.handle = handle
        self.incremental = incremental

    def add(self, slot: Slot, value: Any, time: Milliseconds) -> None:
        self._keyed.slot = slot
        self.handle.add((value, None if time == NO_TIMESTAMP else time))

    def held(self, slot: Slot) -> list[Element] | None:
        self._keyed.slot = slot
        return [Element(*pair) for pair in self.handle.held()] or None

    def values(self, held: list[Element], ctx: WindowContext[Any], *, stays: bool) -> list[Any]:
        values = [element.value for element in held]
        if self.incremental is None or not values:
            return values
        accumulator = None
        for value, time in held:
            accumulator = self.incremental.add_at(accumulator, value, NO_TIMESTAMP if time is None else time)
        return [self.incremental.emitted(accumulator, ctx)]

    def replace(self, slot: Slot, elements: list[Element]) -> None:
        self._keyed.slot = slot
        self.handle.update([tuple(element) for element in elements])

    def clear(self, slot: Slot) -> None:
        self._keyed.slot = slot
        self.handle.clear()

    def move(self, sources: list[Slot], target: Slot) -> None:
        for source in sources:
            self._keyed.slot = source
            elements = self.handle.held()
            self.handle.clear()
            self._keyed.slot = target
            self.handle.extend(elements)
