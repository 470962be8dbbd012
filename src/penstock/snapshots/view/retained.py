"""The epochs that a job keeps: what each one is, and what it costs to keep it. Read only; the job may run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from penstock.epochs.history import shown_watermark
from penstock.epochs.starting.output_replacement import describe
from penstock.errors import CorruptFileError
from penstock.ids import Epoch, Milliseconds
from penstock.jobs import paths
from penstock.jobs.listing import epochs_in
from penstock.jobs.manifest import Manifest, load_manifest
from penstock.jobs.pins import pinned
from penstock.jobs.terms import job_in
from penstock.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEpoch:
    """An epoch that a job can be started from.

    `own_bytes`: of state files that no other kept epoch names; `shared_bytes`: of the others. `together`: how many epochs were
    committed with it and have no manifest of their own. `restored_from`: this epoch is the first after a start from there.
    `drained`: the job was drained by it, after that epoch.
    `back_to`: with it the job went back to that epoch; `repair`: what is being repaired.
    `problem`: why it cannot be read; nothing else is known then.
    """

    epoch: Epoch
    done: bool
    created_ms: Milliseconds | None = None
    parent: Epoch | None = None
    together: int = 0
    own_bytes: int = 0
    shared_bytes: int = 0
    records: int = 0
    watermark_ms: Milliseconds | None = None
    parallelism: int | None = None
    finished: bool = False
    drained: Epoch | None = None
    pinned: bool = False
    restored_from: str | None = None
    back_to: Epoch | None = None
    repair: str = ""
    problem: str = ""

    def describe(self) -> dict[str, Any]:
        return asdict(self)


def list_epochs(storage: Storage) -> list[KeptEpoch]:
    """The epochs that the job in this storage keeps, oldest first."""
    job_in(storage)
    listed = epochs_in(storage)
    done = listed.done
    manifests: list[Manifest] = []
    problems: dict[Epoch, str] = {}
    for epoch in listed.manifests:
        try:
            manifests.append(load_manifest(storage, epoch))
        except CorruptFileError as error:
            if storage.exists(paths.manifest(epoch)):  # otherwise it was retired just now
                problems[epoch] = error.what
    found = describe_epochs(manifests, done, frozenset(pinned(storage)))
    found += [KeptEpoch(epoch=epoch, done=epoch in done, problem=problem) for epoch, problem in problems.items()]
    return sorted(found, key=lambda kept: kept.epoch)


def describe_epochs(manifests: Iterable[Manifest], done: frozenset[Epoch], held: frozenset[Epoch]) -> list[KeptEpoch]:
    """Pure."""
    manifests = list(manifests)
    files = [{ref.name: ref.size for stage in m.state.chains for chain in stage for ref in chain} for m in manifests]
    named = Counter(name for sizes in files for name in sizes)
    return [
        KeptEpoch(
            epoch=manifest.epoch,
            done=manifest.epoch in done,
            created_ms=manifest.created_ms,
            parent=manifest.parent,
            together=len(manifest.earlier),
            own_bytes=sum(size for name, size in sizes.items() if named[name] == 1),
            shared_bytes=sum(size for name, size in sizes.items() if named[name] > 1),
            records=sum(metrics.records_in for step, metrics in manifest.metrics.items() if step in manifest.sources),
            watermark_ms=_watermark(manifest),
            parallelism=manifest.state.parallelism,
            finished=manifest.finished,
            drained=manifest.drained,
            pinned=manifest.epoch in held,
            restored_from=manifest.restored.source if manifest.restored and manifest.restored.at == manifest.epoch else None,
            back_to=manifest.back.to if manifest.back is not None else None,
            repair=describe(manifest.repair),
        )
        for manifest, sizes in zip(manifests, files, strict=True)
    ]


def _watermark(manifest: Manifest) -> Milliseconds | None:
    """The least of the sources that have one."""
    times = (shown_watermark(manifest.watermarks[step]) for step in manifest.sources if step in manifest.watermarks)
    return min((time for time in times if time is not None), default=None)
