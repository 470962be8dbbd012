"""Runs compactions beside the epochs, and puts their results into the next manifest."""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from penstock.epochs.committing.compaction import MergeTask, choose, merge
from penstock.epochs.committing.compaction_worker import CompactionWorker
from penstock.errors import CorruptFileError
from penstock.ids import Term
from penstock.jobs.manifest import Manifest, StateLayout
from penstock.jobs.wholeness import is_damaged
from penstock.runtime.job import CompiledJob
from penstock.runtime.messages import merge_name
from penstock.state.files.durable import FileRef
from penstock.storage import Storage

log = logging.getLogger("penstock")

_ON_THEIR_WAY = 4096
"""More manifests than ever are on their way at once."""


@dataclass(slots=True)
class _Running:
    task: MergeTask
    done: Future[FileRef]


class CompactionRunner:
    """At most one merge for each stage partition at a time.

    `beside`: in a process of its own, so that epochs do not wait for it.
    """

    def __init__(self, storage: Storage, job: CompiledJob, term: Term, compact_after: int, *, beside: bool) -> None:
        self._storage = storage
        self._job = job
        self._term = term
        self._compact_after = compact_after
        self._running: dict[tuple[int, int], _Running] = {}
        self._made = 0
        self._handed: deque[list[str]] = deque(maxlen=_ON_THEIR_WAY)
        self._threads = ThreadPoolExecutor(1, "penstock-compaction") if beside else None
        self._process = CompactionWorker(storage.uri) if beside else None

    def consider(self, manifest: Manifest) -> None:
        """Start the merges that are due."""
        for stage, partitions in enumerate(manifest.state.chains):
            for partition, chain in enumerate(partitions):
                chosen = choose(chain, self._compact_after)
                if chosen is None or (stage, partition) in self._running:
                    continue
                self._made += 1
                task = MergeTask(
                    job=self._job.job,
                    stage=stage,
                    partition=partition,
                    parallelism=self._job.parallelism,
                    max_parallelism=self._job.max_parallelism,
                    state_ids=self._job.stages[stage].state_ids,
                    files=tuple(chain[chosen.start : chosen.stop]),
                    base=chosen.base,
                    epoch=manifest.epoch,
                    attempt=merge_name(self._term, self._made),
                )
                self._running[stage, partition] = _Running(task, self._submit(task))

    def adopt(self, layout: StateLayout) -> StateLayout:
        """The layout with finished merges in place of the files they merged."""
        chains = layout.chains
        handed: list[str] = []
        self._handed.append(handed)
        for (stage, partition), running in list(self._running.items()):
            if not running.done.done():
                continue
            del self._running[stage, partition]
            error = running.done.exception()
            if error is not None:
                if is_damaged(self._storage, str(error), running.task.files):
                    what = str(error).partition("\n")[0]
                    raise CorruptFileError(f"stage {stage}, partition {partition} cannot be compacted: {what}")
                log.warning("compaction of stage %d partition %d failed; trying again later: %s", stage, partition, error)
                continue
            chains[stage][partition] = replaced(chains[stage][partition], running.task.files, running.done.result())
            handed.append(running.task.attempt)
        return layout

    def unsettled(self) -> set[str]:
        """Attempts whose files are being made, or were handed out for manifests that may not be there yet."""
        return {running.task.attempt for running in self._running.values()}.union(*self._handed)

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)

    def _submit(self, task: MergeTask) -> Future[FileRef]:
        if self._threads is not None and self._process is not None:
            return self._threads.submit(self._process.merge, task)
        done: Future[FileRef] = Future()
        try:
            done.set_result(merge(self._storage, task))
        except Exception as error:
            done.set_exception(error)
        return done


def replaced(chain: list[FileRef], merged: tuple[FileRef, ...], by: FileRef) -> list[FileRef]:
    """The chain with a run of files replaced by the file they were merged into; unchanged if the run is no longer there."""
    marks = [ref.mark for ref in merged]
    for start in range(len(chain) - len(marks) + 1):
        if [ref.mark for ref in chain[start : start + len(marks)]] == marks:
            return [*chain[:start], by, *chain[start + len(marks) :]]
    return chain
