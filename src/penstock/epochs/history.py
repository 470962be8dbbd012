"""What happened, for people: a record of each epoch, and the result of a run."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import Protocol, runtime_checkable

from penstock.epochs.lifecycle import State
from penstock.epochs.starting.rescaling import Rescale
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Epoch, JobId, Milliseconds, StepId
from penstock.jobs.left_out import NOTHING, LeftOut, left_out_by
from penstock.jobs.manifest import Manifest
from penstock.jobs.step_metrics import StepMetrics
from penstock.runtime.messages import TaskReport

ALL_PROCESSED = "finished: all input is processed"


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
    busy: dict[str, float] = field(default_factory=dict)
    """The share of `run_seconds` that each step was busy, on average over its partitions."""
    late: int = 0
    """Records that came to windows too late; those without `late=` were dropped."""
    dead_letters: int = 0
    left_out: LeftOut = NOTHING
    """All that is not in the results, since the job began."""
    left_out_by_step: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Late, skipped and dead letters, of the steps that left something out."""
    step_watermarks: dict[str, Milliseconds | None] = field(default_factory=dict)
    backlog: dict[str, int | None] = field(default_factory=dict)
    """About how many records each source had not read; None: it does not know."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds, by `penstock.jobs.metrics.job_metrics.PHASES`."""
    state_bytes: int | None = None
    """Of the files of the state. Not of each epoch: None if it was looked at a moment ago."""


Listener = Callable[[EpochRecord], None]


@dataclass(slots=True, kw_only=True, repr=False)
class JobResult:
    """How a run went. `history` holds the last epochs only: nothing grows with their number. Printed, it is a short table."""

    name: str
    job: JobId
    storage: str
    finished: bool = False
    stopped: bool = False
    drained: bool = False
    """All time was ended before the job stopped: it cannot resume from there."""
    epochs: int = 0
    records_in: int = 0
    records_out: int = 0
    late: int = 0
    """Records that came to windows too late."""
    skipped: int = 0
    """Records that a function failed on, under `errors="skip"`, and bad records that a source left out."""
    dead_letters: int = 0
    """Records that a function failed on, under `errors="dead_letter"`."""
    shed: int = 0
    """At most once: records of the input that are never read, because the job was overloaded or their epoch failed. Where the
    source cannot tell the number, `left_out` says so."""
    left_out: LeftOut = NOTHING
    """The same four since the job began, over all of its runs."""
    restarts: int = 0
    last_epoch: Epoch | None = None
    """The newest that is committed; also one in which nothing was read."""
    rescale: Rescale | None = None
    """The run ended to continue with another parallelism."""
    history: deque[EpochRecord] = field(default_factory=lambda: deque(maxlen=10_000))
    counters: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, record: EpochRecord) -> None:
        self.epochs += 1
        self.records_in += record.records_in
        self.records_out += record.records_out
        self.late += record.late
        self.skipped += record.skipped
        self.dead_letters += record.dead_letters
        self.count(record.left_out)
        self.last_epoch = record.epoch
        self.history.append(record)

    def count(self, left_out: LeftOut) -> None:
        """What is not in the results, since the job began: what more was shed than was known before was shed in this run."""
        self.shed += max(0, left_out.shed - self.left_out.shed)
        self.left_out = left_out

    @property
    def outcome(self) -> str:
        """How it ended, in words."""
        if self.drained:
            return f"drained: event time has ended, with epoch {self.last_epoch or '-'}"
        if not self.finished:
            return f"stopped after epoch {self.last_epoch or '-'}"
        left_out = self.left_out.sentence()
        return f"finished: the input has ended, but not all of it is in the results: {left_out}" if left_out else ALL_PROCESSED

    def rows(self) -> list[tuple[str, str]]:
        """What there is to say of it, for people."""
        return [
            ("outcome", self.outcome),
            ("epochs", f"{self.epochs:,}"),
            ("records in, out", f"{self.records_in:,}, {self.records_out:,}"),
            *self._left_out_rows(),
            ("restarts", f"{self.restarts:,}"),
            ("storage", self.storage),
        ]

    def _left_out_rows(self) -> Iterator[tuple[str, str]]:
        """Only what there is. Where the job has more than this run, both are said."""
        total = self.left_out
        run = LeftOut(
            shed=self.shed,
            estimated=total.estimated and self.shed > 0,
            pieces=total.pieces,
            late=self.late,
            skipped=self.skipped,
            dead_letters=self.dead_letters,
        )
        of_run, of_job = run.described(), total.described()
        for what, count in (of_job | of_run).items():
            here, in_all = of_run.get(what, "0"), of_job.get(what, count)
            name = what if what == "dead letters" else f"{what} records"
            yield name, here if here == in_all else f"{here}; {in_all} since the job began"

    def __str__(self) -> str:
        rows = self.rows()
        wide = max(len(what) for what, _ in rows)
        return "\n".join([f"job {self.name}", *(f"  {what:<{wide}}  {value}" for what, value in rows)])

    def __repr__(self) -> str:
        said = ("name", "finished", "stopped", "drained", "epochs", "records_in", "records_out")
        left_out = ("late", "skipped", "dead_letters", "shed")
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in (*said, *left_out, "restarts", "last_epoch", "storage"))
        return f"JobResult({shown})"

    def _repr_html_(self) -> str:
        """For notebooks."""
        rows = "".join(f"<tr><th>{escape(what)}</th><td>{escape(value)}</td></tr>" for what, value in self.rows())
        return f"<table><caption>job {escape(self.name)}</caption>{rows}</table>"

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
            late=self.late + later.late,
            skipped=self.skipped + later.skipped,
            dead_letters=self.dead_letters + later.dead_letters,
            shed=self.shed + later.shed,
            restarts=self.restarts + later.restarts,
            last_epoch=later.last_epoch if later.last_epoch is not None else self.last_epoch,
            history=deque([*self.history, *later.history], maxlen=self.history.maxlen),
            counters=counters,
        )


@runtime_checkable
class RunListener(Protocol):
    """A listener that also hears of the run as a whole."""

    def __call__(self, record: EpochRecord) -> None: ...

    def started(self, name: str, storage: str) -> None: ...

    def ended(self, result: JobResult | None, error: BaseException | None) -> None:
        """The run is over, with a result or with an error."""


@runtime_checkable
class StateListener(Protocol):
    """A listener that also hears of the driver's states."""

    def entered(self, state: State) -> None: ...


@runtime_checkable
class StartListener(Protocol):
    """A listener that also hears what a run starts from, when that was asked for."""

    def starting(self, lines: list[str]) -> None:
        """In words for people."""

    def copied(self, done: int, total: int) -> None:
        """This many bytes of a snapshot's files have been copied."""


@runtime_checkable
class StandbyListener(Protocol):
    """A listener that also hears of a standby's waiting and taking over."""

    def standing_by(self, name: str, text: str) -> None:
        """In words for people."""


@runtime_checkable
class StopListener(Protocol):
    """A listener that also hears when a signal stops the job."""

    def stopping(self) -> None:
        """After the current epoch. Called in the signal's handler: take note of it, and do no more."""

    def stopped(self, text: str) -> None:
        """After which epoch, and how to resume: in words for people."""


def record_of(
    manifest: Manifest,
    reports: list[TaskReport],
    *,
    sources: set[StepId],
    sinks: set[StepId],
    started_ms: Milliseconds,
    run_seconds: float,
    backlog: Mapping[str, int | None],
) -> EpochRecord:
    """An epoch that has run; when it is committed `committed_ms`, `seconds` and `shed` are known."""
    left_out = left_out_by(manifest.metrics)
    watermarks = [shown_watermark(manifest.watermarks[step]) for step in sources if step in manifest.watermarks]
    return EpochRecord(
        epoch=manifest.epoch,
        started_ms=started_ms,
        committed_ms=0,
        seconds=0.0,
        run_seconds=run_seconds,
        records_in=sum(m.records_in for step, m in manifest.metrics.items() if step in sources),
        records_out=sum(m.records_in for step, m in manifest.metrics.items() if step in sinks),
        skipped=left_out.skipped,
        watermark_ms=min((w for w in watermarks if w is not None), default=None),
        state_entries=sum(r.entries for r in reports if r.entries is not None) or None,
        local_hits=sum(r.origin == "local" for r in reports),
        rebuilt=sum(r.origin == "rebuilt" for r in reports),
        shed=0,
        steps={step: (m.records_in, m.records_out) for step, m in manifest.metrics.items()},
        watermark_lag=watermark_lag(manifest.processing_time, manifest.watermarks, manifest.metrics),
        busy={step: m.busy_s / (run_seconds * manifest.state.parallelism) for step, m in manifest.metrics.items()},
        late=left_out.late,
        dead_letters=left_out.dead_letters,
        left_out=manifest.left_out_in_all,
        left_out_by_step=left_out_by_step(manifest.metrics),
        step_watermarks={step: shown_watermark(watermark) for step, watermark in manifest.watermarks.items()},
        backlog=dict(backlog),
    )


def left_out_by_step(metrics: Mapping[str, StepMetrics]) -> dict[str, tuple[int, int, int]]:
    counts = {step: (m.counters.get("late", 0), m.skipped, m.dead_letters) for step, m in metrics.items()}
    return {step: found for step, found in counts.items() if any(found)}


def watermark_lag(
    now: Milliseconds, watermarks: Mapping[str, Milliseconds], steps: Iterable[str]
) -> dict[str, Milliseconds | None]:
    """Processing time less watermark, for each step."""
    shown = {step: shown_watermark(watermarks.get(step, MIN_WATERMARK)) for step in steps}
    return {step: None if watermark is None else now - watermark for step, watermark in shown.items()}


def shown_watermark(watermark: Milliseconds) -> Milliseconds | None:
    return None if watermark in (MIN_WATERMARK, MAX_WATERMARK) else watermark
