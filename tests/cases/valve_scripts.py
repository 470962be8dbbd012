"""Watermark valve scripts, on the valve that the engine uses."""

from __future__ import annotations

from typing import Any

from penstock.timing.valve import Valve
from tests.cases.expectations import ExpectationError, NotBuiltError


class ValveRun:
    """One script."""

    restorable = False

    def __init__(self, operator: dict[str, Any]) -> None:
        self._valve = Valve(operator["channels"])
        self._events: list[dict[str, Any]] = []
        self._idle = False

    def step(self, step: dict[str, Any]) -> None:
        if "expect" in step:
            events, self._events = self._events, []
            if events != step["expect"]:
                raise ExpectationError(f"expected {step['expect']}, got {events}")
        elif "inspect" in step:
            self._inspect(step["inspect"])
        elif "status" in step:
            self._status(step["channel"], step["status"])
        elif "watermark" in step:
            self._tell(self._valve.advance(step["channel"], step["watermark"]))
        else:
            raise NotBuiltError(f"no step {sorted(step)} in the runner")

    def _status(self, channel: int, status: str) -> None:
        if status == "idle":
            self._tell(self._valve.fall_idle(channel))
        else:
            self._valve.wake(channel)
        if self._valve.idle != self._idle:
            self._idle = self._valve.idle
            self._events.append({"status": "idle" if self._idle else "active"})

    def _tell(self, advanced: bool) -> None:
        if advanced:
            self._events.append({"watermark": self._valve.watermark})

    def _inspect(self, wanted: dict[str, Any]) -> None:
        channel = wanted["channel"]
        found = {"watermark": self._valve.watermark_of(channel), "aligned": self._valve.counts(channel)}
        different = {name: found[name] for name in found.keys() & wanted.keys() if found[name] != wanted[name]}
        if different:
            raise ExpectationError(f"expected {wanted}, found {different}")

    def restore(self) -> None:
        """Nothing is kept in state."""

    def close(self) -> None:
        """Nothing is open."""
