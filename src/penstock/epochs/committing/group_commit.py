"""Making epochs durable and visible: state files, manifest, sinks, done mark; then listeners hear of it.

What only the driver's commits touch (retention, compaction, the run's history) is touched here only, in whichever thread commits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

import msgspec

from penstock.connectors.protocol import Committer
from penstock.diagnosis.failures import mark_of
from penstock.epochs.availability.mirror import Mirror
from penstock.epochs.committing.commit_protocol import commit_sinks, mark_done, write_manifest
from penstock.epochs.committing.compaction_runner import CompactionRunner
from penstock.epochs.committing.orphans import OrphanSweep
from penstock.epochs.committing.pipeline import RanEpoch
from penstock.epochs.committing.retention import Retention
from penstock.epochs.history import JobResult
from penstock.epochs.planning.inputs import SourceInput
from penstock.epochs.planning.report_merge import add_metrics, counters_of, next_layout, volatile_of
from penstock.epochs.setup import Setup
from penstock.epochs.starting.output_replacement import finish_repair
from penstock.epochs.starting.rewind import turn_back
from penstock.errors import AlreadyExistsError, FencedError, PenstockError, SinkRefusedError, StorageError
from penstock.failpoints import fail_point
from penstock.ids import Epoch, StepId
from penstock.jobs.manifest import EpochInput, Manifest, StateLayout
from penstock.jobs.step_metrics import StepMetrics
from penstock.jobs.terms import check_not_fenced
from penstock.storage import Storage

log = logging.getLogger("penstock")

SIZED_EVERY_S = 2.0
WRITERS = 8
"""State files written at once."""


@dataclass(slots=True, kw_only=True)
class GroupCommit:
    """Commits groups of epochs."""

    setup: Setup
    committers: dict[StepId, Committer]
    sources: list[SourceInput]
    retention: Retention
    compactor: CompactionRunner
    orphans: OrphanSweep
    result: JobResult
    mirror: Mirror | None
    _writers: ThreadPoolExecutor | None = field(init=False, default=None)
    _announced: Epoch = field(init=False, default=Epoch(0))
    _sized: float = field(init=False, default=0.0)
    """When the files of the state were last added up."""
    _phases: dict[str, float] = field(init=False, default_factory=dict)
    """Of the commit under way."""
    _shed: int = field(init=False)
    """Of this, all but what the listeners were told was shed before this run."""

    def __post_init__(self) -> None:
        self._shed = self.result.left_out.shed

    def commit(self, head: Manifest, group: list[RanEpoch]) -> Manifest:
        """One manifest for epochs that follow `head`."""
        began = time.perf_counter()
        self._write_files([(name, data) for ran in group for name, data in ran.contents.items()])
        manifest = combined(head, group)
        manifest = msgspec.structs.replace(
            manifest, created_ms=self.setup.clock.now_ms(), state=self.compactor.adopt(grown(head.state, group))
        )
        self._phases = {"began": began, "files": time.perf_counter() - began}
        self.publish(manifest)
        self.tell(manifest, group)
        self.compactor.consider(manifest)
        self.orphans.committed(manifest, self.retention, self.compactor)
        return manifest

    def publish(self, manifest: Manifest) -> None:
        """Manifest, sinks, done."""
        began = time.perf_counter()
        write_manifest(self.setup.storage, manifest)
        written = time.perf_counter()
        self.complete(manifest)
        self._phases |= {"manifest": written - began, "publish": time.perf_counter() - written}

    def complete(self, manifest: Manifest) -> None:
        """The manifest exists: its sinks are committed, again and again if need be."""
        guarantee = self.setup.config.guarantee
        self._insist(lambda: turn_back(self.committers, manifest, guarantee), manifest.epoch)
        if guarantee != "at-least-once":
            self._insist(lambda: commit_sinks(self.committers, manifest.committables, manifest.epoch), manifest.epoch)
        self._insist(lambda: finish_repair(self.committers, manifest, guarantee), manifest.epoch)
        mark_done(self.setup.storage, manifest.epoch)
        try:
            self.retention.committed(manifest)
        except StorageError as error:
            log.warning("old epochs could not be removed; trying again with the next one: %s", error)
        if self.mirror is not None:
            self.mirror.committed(manifest)

    def close(self) -> None:
        if self._writers is not None:
            self._writers.shutdown(wait=False, cancel_futures=True)

    def _write_files(self, files: list[tuple[str, bytes]]) -> None:
        if len(files) > 1:
            if self._writers is None:
                self._writers = ThreadPoolExecutor(WRITERS, "penstock-files")
            for _ in self._writers.map(self._write_file, *zip(*files, strict=True)):
                pass
        else:
            for name, data in files:
                self._write_file(name, data)
        fail_point("files:written")

    def _write_file(self, name: str, data: bytes) -> None:
        try:
            self.setup.storage.create(name, data)
        except AlreadyExistsError:
            # Names hold the attempt: it can only be this file, written by a request that was repeated.
            if self.setup.storage.read(name) != data:
                raise

    def _insist(self, action: Callable[[], None], epoch: Epoch) -> None:
        """A committed epoch cannot be planned anew: a sink that refuses is asked again, until the restart policy gives up."""
        failures, last = 0, ""
        while True:
            try:
                return action()
            except FencedError:
                raise
            except PenstockError as error:
                check_not_fenced(self.setup.storage, epoch)  # a sink may know before this driver does
                failures += 1
                delay = self.setup.config.restart.delay_ms(failures)
                storage = is_of_storage(error, self.setup.storage)
                if delay is None:
                    error.add_note(
                        f"epoch {epoch} is committed and its output is staged; it will be published when the job starts again"
                    )
                    what = f"the job's storage failed while epoch {epoch} was published: {error.what}" if storage else error.what
                    raise SinkRefusedError(what, detail=error.detail, hint=error.hint, nature=error.nature) from error
                again, last = mark_of(error) == last, mark_of(error)
                text = f"the same error again: {error.what}" if again else error
                who = "the job's storage failed" if storage else "a sink refused"
                log.warning("epoch %d is committed but %s; trying again in %d ms: %s", epoch, who, delay, text)
                self.result.restarts += 1
                self.setup.clock.sleep(delay / 1000)

    def tell(self, manifest: Manifest, group: list[RanEpoch]) -> None:
        """Those who see committed epochs only, each once: print and collect, sources, listeners."""
        if manifest.epoch <= self._announced:
            return
        self._announced = manifest.epoch
        commit_sinks(self.committers, _joined(volatile_of(ran.reports) for ran in group), manifest.epoch)
        for source in self.sources:
            source.committed(manifest.sources[source.step], manifest.epoch)
        now = time.perf_counter()
        size = None
        if now - self._sized > SIZED_EVERY_S:
            self._sized = now
            size = sum(ref.size for stage in manifest.state.chains for chain in stage for ref in chain)
        began = self._phases.pop("began", now)
        for ran in group:
            waited = max(0.0, began - ran.started - ran.record.run_seconds)
            record = replace(
                ran.record,
                phases={"run": ran.record.run_seconds, "wait": waited, **self._phases},
                state_bytes=size,
                epoch=manifest.epoch,
                committed_ms=self.setup.clock.now_ms(),
                seconds=now - ran.started,
                shed=max(0, ran.record.left_out.shed - self._shed),
            )
            self._shed = ran.record.left_out.shed
            self.result.add(record)
            counters_of(ran.reports, self.result.counters)
            self.result.finished = ran.manifest.finished
            for listener in self.setup.listeners:
                listener(record)


def is_of_storage(error: PenstockError, storage: Storage) -> bool:
    """Is it the job's storage that failed, rather than a sink or a place that it writes to? Pure."""
    place = unquote(storage.uri.removeprefix("file://").partition("?")[0]).rstrip("/")
    return isinstance(error, StorageError) and f"{place}/" in error.what


def combined(head: Manifest, group: list[RanEpoch]) -> Manifest:
    """The manifest of the last epoch, with the output and the input of those before it. Pure.

    Its number is the next one, however many epochs are in it: two drivers that continue from one epoch create the same manifest,
    and one of them finds that it has lost."""
    number = Epoch(head.epoch + 1)
    last = msgspec.structs.replace(group[-1].manifest, epoch=number, parent=head.epoch)
    if len(group) == 1:
        return last
    return msgspec.structs.replace(
        last,
        committables=_joined(ran.manifest.committables for ran in group),
        metrics=_summed(ran.manifest.metrics for ran in group),
        earlier=[input_of(ran, number) for ran in group[:-1]],
    )


def input_of(ran: RanEpoch, number: Epoch) -> EpochInput:
    manifest = ran.manifest
    return EpochInput(
        epoch=number,
        plan=manifest.plan,
        processing_time=manifest.processing_time,
        read=manifest.read,
        final=ran.final,
        tables=manifest.tables,
        laps=manifest.laps,
    )


def grown(before: StateLayout, group: list[RanEpoch]) -> StateLayout:
    """The state layout after the epochs. Files that a later one holds too are left out. Pure."""
    start = max((number for number, ran in enumerate(group) if ran.flush), default=0)
    files = [placed for ran in group[start:] for placed in ran.files.items()]
    return next_layout(before, files, group[-1].manifest.state.next_due)


def _joined(parts: Iterable[Mapping[str, list[object]]]) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {}
    for part in parts:
        for step, items in part.items():
            found.setdefault(step, []).extend(items)
    return found


def _summed(counts: Iterable[dict[str, StepMetrics]]) -> dict[str, StepMetrics]:
    total: dict[str, StepMetrics] = {}
    for metrics in counts:
        add_metrics(metrics, total)
    return total
