"""Where records change partitions: an edge of the plan that is an exchange, and by what it sends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from penstock.functions import function_location

KeySelector = tuple[str | int, ...] | Callable[[Any], Any]


def no_key(record: Any) -> None:
    """The key of `window_all`: all records are together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """How records are sent to the partitions of the next stage."""

    kind: Literal["key_by", "rebalance", "broadcast", "forward"]
    selector: KeySelector | None = None
    key_type: Any = None

    @property
    def key_fields(self) -> tuple[str | int, ...] | None:
        """The fields that the key is made of; None if a function makes it."""
        return None if callable(self.selector) else self.selector

    def describe(self) -> str:
        if self.kind != "key_by":
            return self.kind
        if self.selector is no_key:
            return "all to one partition"
        if callable(self.selector):
            return f"key_by function {function_location(self.selector)}"
        return "key_by " + ", ".join(map(str, self.selector or ()))
