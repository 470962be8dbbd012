"""A replay as plain data, for tools."""

from __future__ import annotations

from dataclasses import MISSING, asdict, fields
from typing import Any

import msgspec

from penstock.snapshots.replay.result import ABSENT, Event, Replay, StepReplay
from penstock.snapshots.replay.watching.peeking import More
from penstock.state.encoding.json_values import to_plain

VERSION = 1

_VALUES = frozenset(("key", "map_key", "value", "before", "after", "committed", "replayed"))
"""Fields that hold what users have given."""


def replay_data(replay: Replay) -> dict[str, Any]:
    """Values are written as in `penstock.state.encoding.json_values`; what that cannot hold is shown as text."""
    return {
        "version": VERSION,
        "job": replay.job,
        "storage": replay.storage,
        "wanted": replay.wanted,
        "epochs": list(replay.epochs),
        "parent": replay.parent,
        "processing_time": replay.processing_time,
        "parallelism": replay.parallelism,
        "notes": replay.notes,
        "verdict": {
            "reproduced": replay.verdict.reproduced,
            "entries": replay.verdict.entries,
            "differences": [_data(one, always=("step",)) for one in replay.verdict.differences],
            "more": replay.verdict.more,
        },
        "failure": None if replay.failure is None else msgspec.to_builtins(replay.failure),
        "failed": None if replay.failed is None else {"step": replay.failed_step, **_event(replay.failed)},
        "backlog": replay.backlog,
        "recorded": replay.recorded,
        "steps": [_step(step) for step in replay.steps.values()],
    }


def _step(step: StepReplay) -> dict[str, Any]:
    counted = {field.name: getattr(step, field.name) for field in fields(step) if field.name not in ("events", "changes")}
    return {**counted, "events": [_event(one) for one in step.events], "changes": [_data(one) for one in step.changes]}


def _event(event: Event) -> dict[str, Any]:
    given = ("value", "timestamp_ms") if event.kind in ("record", "timer") else ()
    data = _data(event, always=("watermark_ms", "outputs", *given))
    data["outputs"] = [_data(one, always=("timestamp_ms",)) for one in event.outputs]
    if event.timers:
        data["timers"] = [asdict(one) for one in event.timers]
    for name, state in (("before", event.before), ("after", event.after)):
        if state is not None:
            data[name] = {key: shown(value) for key, value in state.items()}
    return data


def _data(one: Any, *, always: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields that are not as they are by default, and some in any case."""
    found: dict[str, Any] = {}
    for field in fields(one):
        value = getattr(one, field.name)
        default = value is field.default or (field.default_factory is not MISSING and not value)
        if value is ABSENT or (default and field.name not in always):
            continue
        name = field.name.removesuffix("_ms")
        found[name] = shown(value) if name in _VALUES else list(value) if name == "window" else value
    return found


def shown(value: Any) -> Any:
    if isinstance(value, dict):
        value = {key: item for key, item in value.items() if not isinstance(key, More)}
    return to_plain(value, or_repr=True)
