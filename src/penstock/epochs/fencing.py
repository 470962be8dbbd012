"""One writer: terms, the head of the epochs, and what a driver finds when it starts.

A start takes the next *term* by exclusive create, then commits an empty take-over epoch. From then on a driver of an older
term fails to create its manifest, or finds a higher epoch after creating it; either way it has lost and commits nothing more.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from penstock import paths
from penstock.errors import AlreadyExistsError, ConfigError, CorruptFileError, FencedError, NotFoundError
from penstock.ids import Epoch, JobId, Term
from penstock.runtime.manifest import Manifest, load_manifest
from penstock.storage import Storage
from penstock.storage.sealed import seal, unseal

VERSION = 1


class JobInfo(msgspec.Struct, frozen=True):
    """What a job is, written once."""

    version: int
    job: JobId
    name: str
    max_parallelism: int
    created_ms: int


class TermInfo(msgspec.Struct, frozen=True):
    """Who took a term."""

    term: Term
    host: str
    pid: int
    started_ms: int


def open_job(storage: Storage, name: str, max_parallelism: int) -> JobInfo:
    """The job in this storage, made now if there is none."""
    try:
        info = read_job(storage)
    except NotFoundError:
        info = _make_job(storage, name, max_parallelism)
    if info.name != name:
        raise ConfigError(
            f"{storage.uri} holds the job {info.name!r}, not {name!r}",
            hint="give each job a storage folder of its own, or use the old name",
        )
    if info.max_parallelism != max_parallelism:
        raise ConfigError(
            f"the job's max_parallelism is {info.max_parallelism}, not {max_parallelism}",
            hint="it is fixed for the life of a job's state; take the setting back",
        )
    return info


def _make_job(storage: Storage, name: str, max_parallelism: int) -> JobInfo:
    """A new job, unless the storage holds epochs: then its `job.json` is lost, and this is no empty start."""
    if any(True for _ in storage.list(paths.EPOCHS)) and not storage.exists(paths.JOB):
        raise CorruptFileError(
            f"{storage.uri}/{paths.JOB} is missing, though the job has committed epochs",
            hint="restore the file from a backup; it was removed by something else than Penstock",
        )
    try:
        storage.create(
            paths.JOB, seal(JobInfo(VERSION, JobId(uuid.uuid4().hex), name, max_parallelism, round(time.time() * 1000)))
        )
    except AlreadyExistsError:
        pass
    return read_job(storage)


def read_job(storage: Storage) -> JobInfo:
    """The job in this storage; `NotFoundError` if there is none."""
    info = unseal(storage.read(paths.JOB), JobInfo, f"{storage.uri}/{paths.JOB}")
    if info.version != VERSION:
        raise CorruptFileError(
            f"{storage.uri}/{paths.JOB} is of format {info.version}; this Penstock reads format {VERSION}",
            hint="run the job with the version of Penstock that wrote it, or a newer one",
        )
    return info


def read_term(storage: Storage, term: Term) -> TermInfo | None:
    """Who took a term; None if that cannot be read."""
    try:
        return unseal(storage.read(paths.term(term)), TermInfo, f"{storage.uri}/{paths.term(term)}")
    except (NotFoundError, CorruptFileError):
        return None


def check_same_job(storage: Storage, info: JobInfo, manifest: Manifest | None) -> None:
    """Refuse an epoch that another job has written: `job.json` or the manifest is not this storage's."""
    if manifest is not None and manifest.job != info.job:
        raise CorruptFileError(
            f"{paths.JOB} and {paths.manifest(manifest.epoch)} in {storage.uri} are of two jobs: files were mixed up",
            detail=f"{paths.JOB}: {info.job}\n{paths.manifest(manifest.epoch)}: {manifest.job}",
            hint="restore the right one from a backup",
        )


def take_term(storage: Storage, above: int = 0, *, after: Term | None = None) -> Term:
    """Become the driver. `above`: this term was taken, whatever has become of its file.

    `after`: only with the very next term; `FencedError` if another has it."""
    if after is not None:
        if not _make_term(storage, Term(after + 1)):
            raise FencedError(
                f"another driver has taken the job over with term {after + 1}",
                detail="this one was about to do the same",
                hint="only one driver may run a job; with --standby this one waits again",
            )
        return Term(after + 1)
    term = Term(max((paths.epoch_number(listed.path) for listed in storage.list(paths.TERMS)), default=0))
    term = Term(max(term, above))
    while True:
        term = Term(term + 1)
        if _make_term(storage, term):
            return term


def _make_term(storage: Storage, term: Term) -> bool:
    info = TermInfo(term, socket.gethostname(), os.getpid(), round(time.time() * 1000))
    try:
        storage.create(paths.term(term), seal(info))
    except AlreadyExistsError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Head:
    """What is committed: the newest manifest, and the epochs whose sinks may not have been committed.

    `renamed`: names that steps had there, and have now."""

    manifest: Manifest | None
    undone: tuple[Epoch, ...]
    epochs: tuple[Epoch, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)


def find_head(storage: Storage, *, fall_back: bool = False, whole: JobId | None = None) -> Head:
    """Read what is committed. A damaged newest manifest is an error, unless `fall_back` says to take the newest whole one.

    `whole`: of this job it also counts as damaged if one of its files of state is missing, or of another size.
    A done mark tells of a manifest: above the newest one that is there, it tells of one that is lost.
    """
    listed = [entry.path for entry in storage.list(paths.EPOCHS)]
    found = {paths.epoch_number(path) for path in listed if path.endswith(".json")}
    done = {paths.epoch_number(path) for path in listed if path.endswith(".done")}
    epochs = tuple(sorted(found | {epoch for epoch in done if epoch > max(found, default=0)}))
    undone = tuple(epoch for epoch in epochs if epoch not in done)
    tried: list[str] = []
    for epoch in reversed(epochs):
        try:
            manifest = load_manifest(storage, epoch)
            if manifest.job == whole:
                check_files(storage, manifest)
            return Head(manifest, undone, epochs)
        except (CorruptFileError, NotFoundError) as error:
            if not fall_back:
                raise
            tried.append(str(error))
    if epochs:
        raise CorruptFileError(f"no manifest of {storage.uri} can be read", detail="\n".join(tried))
    return Head(None, undone, epochs)


def check_files(storage: Storage, manifest: Manifest) -> None:
    """Are the files of the state there? What is in them is checked when it is read."""
    wanted = [ref for stage in manifest.state.chains for chain in stage for ref in chain]
    if not wanted:
        return
    sizes = {listed.path: listed.size for listed in storage.list(paths.STATE)}
    for ref in wanted:
        if (size := sizes.get(ref.name)) != ref.size:
            wrong = "is missing" if size is None else f"has {size:,} bytes instead of {ref.size:,}"
            raise CorruptFileError(
                f"{storage.uri}/{ref.name}, which epoch {manifest.epoch} needs, {wrong}",
                hint="put it back from a copy; or start with --fall-back, from the newest epoch that is whole",
            )


def check_not_fenced(storage: Storage, epoch: Epoch) -> None:
    """After creating manifest `epoch`: is it still the newest? Otherwise another driver has taken over.

    Any epoch above counts, not just the next: whoever slept long enough finds that those after its own are retired already.
    """
    if any(paths.epoch_number(listed.path) > epoch for listed in storage.list(paths.EPOCHS)):
        raise fenced(epoch)


def fenced(epoch: Epoch) -> FencedError:
    return FencedError(
        f"another driver has taken the job over at or after epoch {epoch}",
        detail="this driver commits nothing more and stops",
        hint="only one driver may run a job; see the newest file in terms/ for which one does",
    )
