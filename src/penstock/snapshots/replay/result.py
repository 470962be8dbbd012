"""What a replay has found, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from penstock.ids import Epoch, Milliseconds
from penstock.runtime.messages import Failure

EventKind = Literal["record", "timer", "window", "batch", "watermark", "clock", "end"]
"""What happened to a step. `window`: one fired; `batch`, `watermark`, `clock`, `end`: what was emitted on account of these as a
whole, where it cannot be told which record it came from."""


class _NoKey:
    def __repr__(self) -> str:
        return "no key"


NO_KEY: Any = _NoKey()
ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "absent"})()
"""A state that was not there."""

Window = tuple[Milliseconds, Milliseconds]


@dataclass(slots=True)
class Emitted:
    """A record that a step emitted; `tag`: on a side output."""

    value: Any
    timestamp_ms: Milliseconds | None = None
    tag: str | None = None


@dataclass(slots=True)
class TimerChange:
    """A timer that was set, or deleted."""

    time: Milliseconds
    domain: str
    deleted: bool = False


@dataclass(slots=True, kw_only=True)
class Event:
    """Something that happened to a step, in order. `before`, `after`: the key's state by name, where it was looked at."""

    number: int
    epoch: Epoch
    partition: int
    kind: EventKind
    watermark_ms: Milliseconds | None
    key: Any = NO_KEY
    window: Window | None = None
    value: Any = None
    timestamp_ms: Milliseconds | None = None
    domain: str | None = None
    late: bool = False
    outputs: list[Emitted] = field(default_factory=list)
    timers: list[TimerChange] = field(default_factory=list)
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    error: str | None = None


@dataclass(slots=True, kw_only=True)
class StateChange:
    """An entry of state before and after an epoch; of a list the whole list, of timers those set and gone."""

    epoch: Epoch
    state: str
    kind: str
    key: Any = NO_KEY
    window: Window | None = None
    map_key: Any = NO_KEY
    before: Any = ABSENT
    after: Any = ABSENT


@dataclass(slots=True, kw_only=True)
class StepReplay:
    """What one step did. Counts are of everything, `events` and `changes` of what was kept."""

    step: str
    kind: str
    function: str | None = None
    keyed: bool = False
    records_in: int = 0
    records_out: int = 0
    keys: int = 0
    timers: int = 0
    changed: int = 0
    skipped: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    left_out: int = 0
    changes: list[StateChange] = field(default_factory=list)
    changes_left_out: int = 0

    def by_key(self) -> dict[Any, list[Event]]:
        """The events of each key, in order of its first; a key that cannot be hashed is known by its repr."""
        found: dict[Any, list[Event]] = {}
        for event in self.events:
            if event.key is not NO_KEY:
                found.setdefault(hashable(event.key), []).append(event)
        return found


def hashable(key: Any) -> Any:
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key


@dataclass(slots=True, kw_only=True)
class Difference:
    """Something that came out differently the second time."""

    what: str
    committed: Any
    replayed: Any
    step: str | None = None
    key: Any = NO_KEY


@dataclass(slots=True, kw_only=True)
class Verdict:
    """How the replay compares with what was committed. `reproduced`: None if there is nothing to compare with."""

    reproduced: bool | None
    entries: int = 0
    """Entries of state that were compared."""
    differences: list[Difference] = field(default_factory=list)
    more: int = 0
    """Differences beyond those listed."""


@dataclass(slots=True, kw_only=True)
class Replay:
    """An epoch, run again."""

    job: str
    storage: str
    wanted: int | str
    epochs: list[Epoch]
    """All that were run: those committed together are run together."""
    parent: Epoch
    processing_time: Milliseconds
    parallelism: int
    steps: dict[str, StepReplay]
    verdict: Verdict
    failure: Failure | None = None
    failed: Event | None = None
    failed_step: str | None = None
    notes: list[str] = field(default_factory=list)
    """What a reader should know: the program has changed, state is not claimed, …"""
    backlog: int | None = None
    """Of the next epoch: what is left to read after it, if the sources know."""
    recorded: str | None = None
    """The file that keeps a step's part as a test case."""

    def step(self, name: str) -> StepReplay:
        """What a step did."""
        return self.steps[name]

    @property
    def reproduced(self) -> bool | None:
        return self.verdict.reproduced

    def to_json(self) -> dict[str, Any]:
        """As plain data, for tools."""
        from penstock.snapshots.replay.as_json import replay_data

        return replay_data(self)
