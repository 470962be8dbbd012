"""What happened, for people: a record of each epoch, and the result of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from penstock.epochs.rescaling import Rescale
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Epoch, JobId, Milliseconds, StepId
from penstock.runtime.manifest import Manifest
from penstock.runtime.orders import TaskReport


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRecord:
    """One committed epoch."""

    epoch: Epoch
    started_ms: Milliseconds
    committed_ms: Milliseconds
    seconds: float
    run_seconds: float
    records_in: int
    records_out: int
    skipped: int
    watermark_ms: Milliseconds | None
    state_entries: int | None
    local_hits: int
    rebuilt: int
    shed: int
    steps: dict[str, tuple[int, int]] = field(default_factory=dict)
    watermark_lag: dict[str, Milliseconds | None] = field(default_factory=dict)
    """How far each step's event time is behind the clock; None while it has none, and after the end of time."""


Listener = Callable[[EpochRecord], None]


@dataclass(slots=True, kw_only=True)
class JobResult:
    """How a run went. `history` holds the last epochs only: nothing grows with their number."""

    name: str
    job: JobId
    storage: str
    finished: bool = False
    stopped: bool = False
    epochs: int = 0
    records_in: int = 0
    records_out: int = 0
    restarts: int = 0
    last_epoch: Epoch | None = None
    """The newest that is committed; also one in which nothing was read."""
    rescale: Rescale | None = None
    """The run ended to go on with another parallelism."""
    history: deque[EpochRecord] = field(default_factory=lambda: deque(maxlen=10_000))
    counters: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, record: EpochRecord) -> None:
        self.epochs += 1
        self.records_in += record.records_in
        self.records_out += record.records_out
        self.last_epoch = record.epoch
        self.history.append(record)

    def followed_by(self, later: JobResult) -> JobResult:
        """Two runs, one after the other, as one."""
        counters = {step: dict(counts) for step, counts in self.counters.items()}
        for step, counts in later.counters.items():
            totals = counters.setdefault(step, {})
            for name, count in counts.items():
                totals[name] = totals.get(name, 0) + count
        return replace(
            later,
            epochs=self.epochs + later.epochs,
            records_in=self.records_in + later.records_in,
            records_out=self.records_out + later.records_out,
            restarts=self.restarts + later.restarts,
            last_epoch=later.last_epoch if later.last_epoch is not None else self.last_epoch,
            history=deque([*self.history, *later.history], maxlen=self.history.maxlen),
            counters=counters,
        )


@runtime_checkable
class RunListener(Protocol):
    """A listener that is also told of the run as a whole."""

    def __call__(self, record: EpochRecord) -> None: ...

    def started(self, name: str, storage: str) -> None: ...

    def ended(self, result: JobResult | None, error: BaseException | None) -> None:
        """The run is over, with a result or with an error."""


@runtime_checkable
class StartListener(Protocol):
    """A listener that is also told what a run starts from, when that was asked for."""

    def starting(self, lines: list[str]) -> None:
        """In words for people."""

    def copied(self, done: int, total: int) -> None:
        """So many bytes of a snapshot's files have been copied."""


@runtime_checkable
class StandbyListener(Protocol):
    """A listener that is also told of a standby's waiting and taking over."""

    def standing_by(self, name: str, text: str) -> None:
        """In words for people."""


def record_of(
    manifest: Manifest,
    reports: list[TaskReport],
    *,
    sources: set[StepId],
    sinks: set[StepId],
    started_ms: Milliseconds,
    run_seconds: float,
) -> EpochRecord:
    """An epoch that has run; when it is committed `committed_ms` and `seconds` are known."""
    watermarks = [shown_watermark(manifest.watermarks[step]) for step in sources if step in manifest.watermarks]
    return EpochRecord(
        epoch=manifest.epoch,
        started_ms=started_ms,
        committed_ms=0,
        seconds=0.0,
        run_seconds=run_seconds,
        records_in=sum(m.records_in for step, m in manifest.metrics.items() if step in sources),
        records_out=sum(m.records_in for step, m in manifest.metrics.items() if step in sinks),
        skipped=sum(m.skipped for m in manifest.metrics.values()),
        watermark_ms=min((w for w in watermarks if w is not None), default=None),
        state_entries=sum(r.entries for r in reports if r.entries is not None) or None,
        local_hits=sum(r.origin == "local" for r in reports),
        rebuilt=sum(r.origin == "rebuilt" for r in reports),
        shed=sum(state.shed for state in manifest.sources.values()),
        steps={step: (m.records_in, m.records_out) for step, m in manifest.metrics.items()},
        watermark_lag=watermark_lag(manifest.processing_time, manifest.watermarks, manifest.metrics),
    )


def watermark_lag(
    now: Milliseconds, watermarks: Mapping[str, Milliseconds], steps: Iterable[str]
) -> dict[str, Milliseconds | None]:
    """Processing time less watermark, for each step."""
    shown = {step: shown_watermark(watermarks.get(step, MIN_WATERMARK)) for step in steps}
    return {step: None if watermark is None else now - watermark for step, watermark in shown.items()}


def shown_watermark(watermark: Milliseconds) -> Milliseconds | None:
    return None if watermark in (MIN_WATERMARK, MAX_WATERMARK) else watermark
