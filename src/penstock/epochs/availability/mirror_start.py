"""Starting a job from a mirror.

Laws:
- A job resumes from a mirror only if no process is seen to drive the first storage, unless forced.
- Epochs that were committed there and are not here are lost. Their numbers are not used again: the take-over epoch is far above
  the newest that the mirror knows of, and the job goes back as far as its sinks are concerned (see `epochs/starting/rewind.py`).
- Once its take-over epoch is committed the mirror is an ordinary job, and no longer mirrored into.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from penstock.diagnosis.invocation import UNATTENDED, Invocation
from penstock.epochs.availability.live_driver import may_be_driven, watch
from penstock.epochs.availability.standby import Seen, observe
from penstock.epochs.committing.commit_protocol import mark_done
from penstock.errors import ConfigError, CorruptFileError, PenstockError
from penstock.ids import Epoch, Milliseconds, Term
from penstock.jobs import paths
from penstock.jobs.manifest import load_manifest
from penstock.jobs.mirror_record import MirrorInfo, read_mirror, unstarted, write_mirror
from penstock.jobs.pins import kept_epochs
from penstock.jobs.terms import find_head, read_job
from penstock.storage import Storage, open_storage


def mark_mirrored(storage: Storage, term: Term) -> None:
    """What is mirrored was done: a mark that a crash left out is made, for manifests of the terms that were mirrored."""
    epochs, done = kept_epochs(storage)
    for epoch in set(epochs) - set(done):
        if load_manifest(storage, epoch).term <= term:
            mark_done(storage, epoch)


def mark_started(storage: Storage) -> None:
    """The job's take-over epoch is committed: it is no longer a mirror."""
    info = read_mirror(storage)
    if info is not None and info.started_ms is None:
        write_mirror(storage, msgspec.structs.replace(info, started_ms=_now()), durable=True)


def check_start(
    storage: Storage,
    lease_s: float,
    *,
    force: bool,
    fall_back: bool,
    tell: Callable[[str], None],
    invocation: Invocation = UNATTENDED,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Before a job is started: if its storage is a mirror, refuse while the first storage is driven, and say what is lost."""
    info = read_mirror(storage)
    if info is None:
        return
    head = find_head(storage, fall_back=True)
    info = unstarted(info, head)
    if info is None:
        return
    newest = head.manifest.epoch if head.manifest is not None else Epoch(0)
    if newest < info.mirrored and not fall_back:  # it is written after the manifest
        raise CorruptFileError(
            f"the mirror {storage.uri} is not whole: {paths.manifest(info.mirrored)} is missing, and was mirrored",
            detail=f"{paths.MIRROR} tells of epoch {info.mirrored}; the newest that is there is {newest or 'none'}",
            hint="put it back from a copy; or resume from what is there and lose what came after it: "
            f"{invocation.again_with('--fall-back')}",
        )
    info = msgspec.structs.replace(info, mirrored=newest)  # it may be further than was noted
    tell(f"{storage.uri} is a mirror of {info.storage}, as of epoch {info.mirrored}: {info.lost}")
    driver = None if force else _driver(info, lease_s, tell, monotonic, sleep)
    if driver is not None:
        raise ConfigError(
            f"{storage.uri} is the mirror of a running job: {driver.driver} drives it in {info.storage}",
            detail=f"the mirror is as of epoch {info.mirrored}",
            hint="stop that driver first; or start with --force, which takes its output back and makes it fail",
        )
    mark_mirrored(storage, info.term)
    tell(f"goes back to epoch {info.mirrored}: output published after it is taken back or repeated")


def _driver(
    info: MirrorInfo,
    lease_s: float,
    tell: Callable[[str], None],
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
) -> Seen | None:
    """Who is seen to drive the first storage; None if no process is, or if it cannot be read."""
    try:
        first = open_storage(info.storage)
        if not first.exists(paths.JOB) or read_job(first).job != info.job:
            tell(f"{info.storage} no longer holds the job")
            return None
        seen = observe(first)
        leases = [lease for lease in (seen.lease, seen.attempt) if lease is not None]
        if not leases or not may_be_driven(first, seen):
            return None
        tell(f"{info.storage} can be read: is it driven?")
        return watch(first, seen, max(lease_s, *(lease.lease_ms / 1000 for lease in leases)), monotonic, sleep)
    except PenstockError as error:
        tell(f"{info.storage} cannot be read: {error.what}")
    return None


def _now() -> Milliseconds:
    return round(time.time() * 1000)
