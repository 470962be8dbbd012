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

from penstock.errors import AlreadyExistsError, ConfigError, CorruptFileError, FencedError, NotFoundError
from penstock.ids import Epoch, JobId, Term, is_job_id
from penstock.jobs import paths
from penstock.jobs.left_out import LeftOut
from penstock.jobs.listing import epochs_in, newest_term_in
from penstock.jobs.manifest import Manifest, load_manifest
from penstock.jobs.processes import born, this_machine
from penstock.jobs.wholeness import Verified, check_files
from penstock.storage import LocalStorage, Storage
from penstock.storage.documents import NOTE_BYTES, read_small
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
    machine: str = ""
    born: int = 0
    """See `processes`."""


def open_job(storage: Storage, name: str, max_parallelism: int | None, *, otherwise: int) -> JobInfo:
    """The job in this storage, made now if there is none. `otherwise`: the key groups of a new one, if none are given."""
    try:
        info = read_job(storage)
    except NotFoundError:
        info = _make_job(storage, name, otherwise if max_parallelism is None else max_parallelism)
    check_settings(storage, info, name, max_parallelism)
    return info


def check_settings(storage: Storage, info: JobInfo, name: str, max_parallelism: int | None) -> None:
    """Refuse to drive a job with settings that are another job's."""
    if info.name != name:
        raise ConfigError(
            f"{storage.uri} holds the job {info.name!r}, not {name!r}",
            hint="give each job a storage folder of its own, or use the old name",
        )
    if max_parallelism is not None and info.max_parallelism != max_parallelism:
        raise ConfigError(
            f"the job's max_parallelism is {info.max_parallelism}, not {max_parallelism}",
            hint="it is fixed for the life of a job's state; take the setting back, or leave it out: "
            "`penstock savepoint-rewrite --help` says how a new job goes on with another",
        )


def _make_job(storage: Storage, name: str, max_parallelism: int) -> JobInfo:
    """A new job, unless the storage holds epochs: then its `job.json` is lost, and this is no empty start."""
    if epochs_in(storage).any and not storage.exists(paths.JOB):
        raise CorruptFileError(
            f"{storage.uri}/{paths.JOB} is missing, though the job has committed epochs",
            hint="restore the file from a backup; it was removed by something else than Penstock",
        )
    if isinstance(storage, LocalStorage):
        storage.make_private()
    try:
        storage.create(
            paths.JOB, seal(JobInfo(VERSION, JobId(uuid.uuid4().hex), name, max_parallelism, round(time.time() * 1000)))
        )
    except AlreadyExistsError:
        pass
    return read_job(storage)


def read_job(storage: Storage) -> JobInfo:
    """The job in this storage; `NotFoundError` if there is none."""
    info = unseal(read_small(storage, paths.JOB, NOTE_BYTES), JobInfo, f"{storage.uri}/{paths.JOB}")
    if info.version != VERSION:
        raise CorruptFileError(
            f"{storage.uri}/{paths.JOB} is of format {info.version}; this Penstock reads format {VERSION}",
            hint="run the job with the version of Penstock that wrote it, or a newer one",
        )
    if not is_job_id(info.job):
        raise CorruptFileError(
            f"{storage.uri}/{paths.JOB} holds a job id that can be none: {info.job!r}",
            hint="it was not written by Penstock: find out who can write to the storage",
        )
    return info


def job_in(storage: Storage) -> JobInfo:
    """The job in a storage; an error that says so if there is none."""
    try:
        return read_job(storage)
    except NotFoundError as error:
        hint = "give the storage that the job was run with; `penstock jobs ROOT` lists those below a folder"
        raise ConfigError(f"{storage.uri} holds no job", hint=hint) from error


def read_term(storage: Storage, term: Term) -> TermInfo | None:
    """Who took a term; None if that cannot be read."""
    try:
        path = paths.term(term)
        return unseal(read_small(storage, path, NOTE_BYTES), TermInfo, f"{storage.uri}/{path}")
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
    term = Term(max(newest_term_in(storage), above))
    while True:
        term = Term(term + 1)
        if _make_term(storage, term):
            return term


def _make_term(storage: Storage, term: Term) -> bool:
    pid = os.getpid()
    info = TermInfo(term, socket.gethostname(), pid, round(time.time() * 1000), this_machine(), born(pid))
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

    `whole`: of this job it also counts as damaged if one of its files of state is: missing, of another size, or changed since.
    With `fall_back` all files are read.
    A done mark tells of a manifest: above the newest one that is there, it tells of one that is lost.
    """
    listed = epochs_in(storage)
    found, newest = set(listed.manifests), max(listed.manifests, default=0)
    epochs = tuple(sorted(found | {epoch for epoch in listed.done if epoch > newest}))
    undone = tuple(epoch for epoch in epochs if epoch not in listed.done)
    tried: list[str] = []
    verified = Verified(storage)
    for epoch in reversed(epochs):
        try:
            manifest = load_manifest(storage, epoch)
            if manifest.job == whole:
                check_files(storage, manifest, listed.manifests[epoch], thoroughly=fall_back, verified=verified)
            return Head(manifest, undone, epochs)
        except (CorruptFileError, NotFoundError) as error:
            if not fall_back:
                raise
            tried.append(error.what)
    if epochs:
        raise CorruptFileError(
            f"no epoch of {storage.uri} is whole",
            detail="\n".join(tried),
            hint="put the files back from a copy, or start from a savepoint or a mirror (--from SNAPSHOT)",
        )
    return Head(None, undone, epochs)


def left_out_of(storage: Storage) -> LeftOut:
    """What is not in the results of the job in this storage, as far as that can be read."""
    try:
        head = find_head(storage, fall_back=True).manifest
    except (CorruptFileError, NotFoundError):
        head = None
    return LeftOut() if head is None else head.left_out_in_all


def check_not_fenced(storage: Storage, epoch: Epoch) -> None:
    """After creating manifest `epoch`: is it still the newest? Otherwise another driver has taken over.

    Any epoch above counts, not just the next: whoever slept long enough finds that those after its own are retired already.
    """
    if epochs_in(storage).newest > epoch:
        raise fenced(epoch)


def fenced(epoch: Epoch) -> FencedError:
    return FencedError(
        f"another driver has taken the job over at or after epoch {epoch}",
        detail="this driver commits nothing more and stops",
        hint="only one driver may run a job; see the newest file in terms/ for which one does",
    )
