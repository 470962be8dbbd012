"""The window function: what a person implements to see a window as a whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

from penstock.contexts import ProcessContext
from penstock.errors import PlanError
from penstock.functions import Function
from penstock.state.descriptors import State
from penstock.state.overlay.keyed import KeyedState
from penstock.windows.window import GLOBAL, TimeWindow

K = TypeVar("K")
I = TypeVar("I")  # noqa: E741 - the input
O = TypeVar("O")  # noqa: E741 - the output
S = TypeVar("S", bound=State)


class WindowContext(ProcessContext, Generic[K]):
    """The context of a window: `window`, `key`, the times, and side outputs."""

    __slots__ = ("_keyed", "window")

    def __init__(self, keyed: KeyedState) -> None:
        super().__init__()
        self._keyed = keyed
        self.window: TimeWindow = GLOBAL

    @property
    def key(self) -> K:
        key: K = self._keyed.key_of(self._keyed.slot)
        return key


class WindowFunction(Function, Generic[K, I, O]):
    """Sees the contents of a window each time it fires. Flink's ProcessWindowFunction.

    State declared on the class is the key's, and outlives the window; `per_window(ValueState(int))` is the window's.
    """

    def process(self, values: list[I], ctx: WindowContext[K]) -> Iterable[O] | None:
        """The window fires. After an incremental aggregation `values` is its one result."""
        raise NotImplementedError

    def clear(self, ctx: WindowContext[K]) -> None:
        """The window is over; its own state is dropped after this."""


def per_window(state: S) -> S:
    """A state that each window has for itself: `count = per_window(ValueState(int, default=0))`."""
    if not isinstance(state, State):
        raise PlanError(f"per_window({state!r})", hint="give a state: per_window(ValueState(int))")
    state.per_window = True
    return state
