"""A replay as plain data, for tools."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgspec

from penstock.snapshots.replay.plain_values import to_plain
from penstock.snapshots.replay.result import ABSENT, NO_KEY, Difference, Event, Replay, StateChange, StepReplay
from penstock.snapshots.replay.watching.peeking import More

VERSION = 1


def replay_data(replay: Replay) -> dict[str, Any]:
    """Values are written as in `penstock.snapshots.replay.plain_values`; what that cannot hold is shown as text."""
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
            "differences": [_difference(one) for one in replay.verdict.differences],
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
    return {**counted, "events": [_event(one) for one in step.events], "changes": [_change(one) for one in step.changes]}


def _event(event: Event) -> dict[str, Any]:
    data: dict[str, Any] = {
        "number": event.number,
        "epoch": event.epoch,
        "partition": event.partition,
        "kind": event.kind,
        "watermark": event.watermark_ms,
    }
    if event.key is not NO_KEY:
        data["key"] = shown(event.key)
    if event.window is not None:
        data["window"] = list(event.window)
    if event.kind in ("record", "timer"):
        data["value"] = shown(event.value)
        data["timestamp"] = event.timestamp_ms
    if event.domain is not None:
        data["domain"] = event.domain
    if event.late:
        data["late"] = True
    data["outputs"] = [
        {"value": shown(one.value), "timestamp": one.timestamp_ms, **({} if one.tag is None else {"tag": one.tag})}
        for one in event.outputs
    ]
    if event.timers:
        data["timers"] = [{"time": t.time, "domain": t.domain, "deleted": t.deleted} for t in event.timers]
    for name, state in (("before", event.before), ("after", event.after)):
        if state is not None:
            data[name] = {key: shown(value) for key, value in state.items()}
    if event.error is not None:
        data["error"] = event.error
    return data


def _change(change: StateChange) -> dict[str, Any]:
    data: dict[str, Any] = {"epoch": change.epoch, "state": change.state, "kind": change.kind}
    if change.key is not NO_KEY:
        data["key"] = shown(change.key)
    if change.window is not None:
        data["window"] = list(change.window)
    if change.map_key is not NO_KEY:
        data["map_key"] = shown(change.map_key)
    for name, value in (("before", change.before), ("after", change.after)):
        if value is not ABSENT:
            data[name] = shown(value)
    return data


def _difference(difference: Difference) -> dict[str, Any]:
    data: dict[str, Any] = {"what": difference.what, "step": difference.step}
    if difference.key is not NO_KEY:
        data["key"] = shown(difference.key)
    for name, value in (("committed", difference.committed), ("replayed", difference.replayed)):
        if value is not ABSENT:
            data[name] = shown(value)
    return data


def shown(value: Any) -> Any:
    if isinstance(value, dict):
        value = {key: item for key, item in value.items() if not isinstance(key, More)}
    return to_plain(value, or_repr=True)
