"""What a person implements for a join, and the context it is handed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from penstock.contexts import ProcessContext
from penstock.functions import Function, OutputTag
from penstock.ids import Milliseconds

__all__ = ["CoGroupFunction", "JoinContext", "JoinFunction", "ProcessJoinFunction"]

L = TypeVar("L")
R = TypeVar("R")
O = TypeVar("O")  # noqa: E741 - the output


class JoinContext:
    """The context of two records that are joined."""

    __slots__ = ("_ctx", "left_timestamp", "right_timestamp", "timestamp")

    def __init__(self, ctx: ProcessContext) -> None:
        self._ctx = ctx
        self.left_timestamp: Milliseconds | None = None
        """Event time of the left record; None if there is none."""
        self.right_timestamp: Milliseconds | None = None
        self.timestamp: Milliseconds = 0
        """Event time of the results."""

    @property
    def current_watermark(self) -> Milliseconds:
        return self._ctx.current_watermark

    def output(self, tag: OutputTag[Any], value: Any) -> None:
        """Write to a side output, with the time of the results."""
        ctx = self._ctx
        before, ctx.timestamp_ms = ctx.timestamp_ms, self.timestamp
        ctx.output(tag, value)
        ctx.timestamp_ms = before


class JoinFunction(Function, Generic[L, R, O]):
    """One result of two records that are joined; in outer joins one of them may be None."""

    def join(self, left: L, right: R) -> O:
        raise NotImplementedError


class ProcessJoinFunction(Function, Generic[L, R, O]):
    """Any number of results of two records that are joined; in outer joins one of them may be None."""

    def process(self, left: L, right: R, ctx: JoinContext) -> Iterable[O] | None:
        raise NotImplementedError


class CoGroupFunction(Function, Generic[L, R, O]):
    """Any number of results of the records of a window, of both sides; either may have none."""

    def co_group(self, left: list[L], right: list[R]) -> Iterable[O] | None:
        raise NotImplementedError
