"""The keyed co-process step: a user's function on two streams that are keyed alike, with state and timers for each key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from penstock.runtime.operators.keyed import KeyedProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedCoProcess(KeyedProcess):
    """A `KeyedCoProcessFunction`: both inputs share the state and the timers of a key."""

    label: str = "co-process"
    made_for: ClassVar[str] = "KeyedCoProcessFunction"
    methods: ClassVar[tuple[str, ...]] = ("process1", "process2")
