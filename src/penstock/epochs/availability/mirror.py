"""Mirroring: committed epochs are copied to a second place, beside the epochs.

    the newest done epoch ── pin it ── state files ── manifest ── done mark ── mirror.json ── retention

Laws:
- Epochs never wait for the mirror. One that falls behind continues with the newest epoch, and skips those between.
- The mirror is a whole job storage at any time: a manifest is written after all it names, and only of a done epoch.
- What only a crash can have left there is removed after this driver's first manifest, so no older one can come to name it and be
  the newest.
- Who finds a higher term in the mirror has been replaced, or a job was started there: it stops mirroring.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from penstock.epochs.availability.mirror_start import mark_mirrored
from penstock.epochs.committing.retention import Retention, orphans
from penstock.errors import AlreadyExistsError, ConfigError, CorruptFileError, NotFoundError, PenstockError, StorageError
from penstock.failpoints import fail_point
from penstock.ids import Epoch, Term
from penstock.jobs import paths
from penstock.jobs.listing import newest_term_in, notes_in, state_files_in
from penstock.jobs.manifest import Manifest, encode_manifest
from penstock.jobs.mirror_record import VERSION, MirrorInfo, read_mirror, write_mirror
from penstock.jobs.pins import kept_epochs, pin
from penstock.jobs.terms import JobInfo, read_job
from penstock.state.files.copying import copy_file
from penstock.state.files.durable import FileRef, verify_file
from penstock.storage import LocalStorage, Storage, open_storage, private

log = logging.getLogger("penstock")

AT_ONCE = 4
AGAIN_S = 2.0
"""After a mirror did not answer it is tried again so much later."""

LAST_S = 30.0
"""A job that ends in good order waits this long for its last epoch to be mirrored."""

KNOWN_EVERY_S = 1.0
"""While files are copied the mirror is given this often how far the job is."""


class MirrorReplacedError(PenstockError):
    """The mirror is another's."""


class Mirror:
    """Copies a job's done epochs to a second storage."""

    def __init__(self, storage: Storage, uri: str, info: JobInfo, term: Term, keep: int) -> None:
        self._storage = storage
        self._target = open_storage(uri)
        self._info = info
        self._term = term
        self._retention = Retention(self._target, keep)
        self._have: set[str] | None = None
        """State files that are there whole; None: not looked yet."""
        self._swept = False
        self._known = Epoch(0)
        self._mirrored = Epoch(0)
        self._told_at = 0.0
        self._news = threading.Condition()
        self._ending = False
        self._thread: threading.Thread | None = None

    # --- what the driver tells ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Refuse a place that is not for this job; then mirror, in a thread."""
        try:
            self.check()
        except StorageError as error:
            log.warning("the mirror %s does not answer; trying again: %s", self._target.uri, error.what)
        self._thread = threading.Thread(target=self._run, name="penstock-mirror", daemon=True)
        self._thread.start()

    def committed(self, manifest: Manifest) -> None:
        """An epoch is committed and done."""
        with self._news:
            self._known = max(self._known, manifest.epoch)
            self._news.notify_all()

    def finish(self) -> None:
        """The job ends in good order: its last epoch too, if that is soon done."""
        deadline = time.monotonic() + LAST_S
        with self._news:
            while self._thread is not None and self._thread.is_alive() and self._mirrored < self._known:
                if not self._news.wait(max(0.0, deadline - time.monotonic())):
                    log.warning("the mirror %s is at epoch %d, the job at %d", self._target.uri, self._mirrored, self._known)
                    return

    def close(self) -> None:
        with self._news:
            self._ending = True
            self._news.notify_all()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(AGAIN_S)

    # --- the thread --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        behind = False
        while True:
            with self._news:
                while not self._ending and self._mirrored >= self._known:
                    self._news.wait()
                if self._ending:
                    return
            try:
                self.mirror()
                if behind:
                    log.warning("the mirror %s has caught up, with epoch %d", self._target.uri, self._mirrored)
                behind = False
            except (MirrorReplacedError, ConfigError) as error:
                log.warning("mirroring has ended: %s", error)
                return
            except (PenstockError, OSError) as error:
                if not behind:
                    log.warning("the mirror %s falls behind: %s", self._target.uri, error)
                behind = True
                with self._news:
                    self._news.wait_for(lambda: self._ending, AGAIN_S)

    def mirror(self) -> Epoch:
        """Bring the mirror to the newest done epoch; which one that is."""
        self._prepare()
        with pin(self._storage, None, "mirror") as manifest:
            if manifest.term > self._term:
                raise MirrorReplacedError(f"term {manifest.term} drives the job now")
            self._copy(manifest)
        with self._news:
            self._mirrored = max(self._mirrored, manifest.epoch)
            self._known = max(self._known, manifest.epoch)
            self._news.notify_all()
        self._retire(manifest)
        self._tell()
        return manifest.epoch

    def check(self) -> None:
        """Refuse to mirror over something else."""
        target = self._target
        mirror = read_mirror(target)
        if target.exists(paths.JOB) and read_job(target).job != self._info.job:
            raise ConfigError(f"the mirror {target.uri} holds another job", hint="give each job a mirror of its own")
        if mirror is None and target.exists(paths.JOB):
            raise ConfigError(
                f"the mirror {target.uri} is a job's storage, not a mirror", hint="give mirror= an empty folder or prefix"
            )
        if mirror is not None and mirror.started_ms is not None:
            raise ConfigError(
                f"a job was started from the mirror {target.uri}",
                detail=f"it was the mirror of {mirror.storage}",
                hint="the job lives there now: run it there, or mirror to another place",
            )
        self._check_ours(mirror)

    def _check_ours(self, mirror: MirrorInfo | None) -> None:
        newest = newest_term_in(self._target)
        if newest > self._term or (mirror is not None and mirror.started_ms is not None):
            raise MirrorReplacedError(
                f"{self._target.uri} is driven, or mirrored into, by term {newest}; this is term {self._term}"
            )

    # --- one epoch ---------------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Who mirrors, and what is there."""
        if self._have is not None:
            self._check_ours(read_mirror(self._target))
            return
        self.check()
        if isinstance(self._target, LocalStorage):
            self._target.make_private()
        # First of all mirror.json: what has none is not known to be a mirror.
        self._mirrored = max(kept_epochs(self._target)[0], default=Epoch(0))
        self._tell()
        _copy_small(self._storage, self._target, [paths.JOB, paths.term(self._term)])
        mark_mirrored(self._target, self._term)
        epochs, _ = kept_epochs(self._target)
        self._retention.load(epochs)
        there = {listed.path for listed in state_files_in(self._target)}
        self._have = self._retention.referenced() & there

    def _copy(self, manifest: Manifest) -> None:
        assert self._have is not None
        refs = {ref.name: ref for stage in manifest.state.chains for chain in stage for ref in chain}
        missing = [refs[name] for name in sorted(refs.keys() - self._have)]
        with ThreadPoolExecutor(AT_ONCE, "penstock-mirror") as threads:
            for name in threads.map(self._copy_file, missing):
                self._have.add(name)
                if time.monotonic() - self._told_at > KNOWN_EVERY_S:
                    self._tell()
        programs = [paths.program(manifest.program)] if manifest.program else []
        notes = [listed.path for listed in notes_in(self._storage)]
        _copy_small(self._storage, self._target, notes)
        _copy_small(self._storage, private(self._target), programs)
        fail_point("mirror:files")
        self._check_ours(read_mirror(self._target))
        if manifest.epoch > max(kept_epochs(self._target)[0], default=0):
            _create(self._target, paths.manifest(manifest.epoch), encode_manifest(manifest))
        fail_point("mirror:manifest")
        _create(self._target, paths.done(manifest.epoch), b"")

    def _copy_file(self, ref: FileRef) -> str:
        hint = "the mirror is tried again; it stays at the last whole epoch"
        try:
            copy_file(self._storage, self._target, ref, ref.name, hint=hint, point="mirror:half-copied")
        except AlreadyExistsError:  # copied before a crash: by whom is not known
            try:
                verify_file(self._target, ref)
            except CorruptFileError:
                self._target.delete([ref.name])
                copy_file(self._storage, self._target, ref, ref.name, hint=hint, point="mirror:half-copied")
        except CorruptFileError:
            self._target.delete([ref.name])  # no manifest names it
            raise
        return ref.name

    def _tell(self) -> None:
        self._told_at = time.monotonic()
        now = round(time.time() * 1000)
        info = MirrorInfo(VERSION, self._info.job, self._storage.uri, self._term, self._known, self._mirrored, now)
        found = read_mirror(self._target)
        if found is not None:
            if found.started_ms is not None or found.term > self._term:
                raise MirrorReplacedError(f"{self._target.uri} now belongs to another driver")
            info = msgspec.structs.replace(info, committed=max(info.committed, found.committed))
        write_mirror(self._target, info)

    def _retire(self, manifest: Manifest) -> None:
        """Let go of what is beyond `keep`, and once of what nothing names."""
        assert self._have is not None
        self._retention.committed(manifest)
        if not self._swept:
            self._swept = True
            self._target.delete(orphans(self._target, self._retention.referenced(), self._term))
        self._have &= self._retention.referenced()


def mirror_of(storage: Storage, uri: str | None, info: JobInfo, term: Term, keep: int) -> Mirror | None:
    """The mirror that a job asks for, mirroring; None for a job that asks for none, or was started from it."""
    if uri is None:
        return None
    if open_storage(uri).uri == storage.uri:
        log.warning("%s was the job's mirror and is its storage now: it has no mirror", uri)
        return None
    mirror = Mirror(storage, uri, info, term, keep)
    mirror.start()
    return mirror


def _copy_small(source: Storage, target: Storage, names: Iterable[str]) -> None:
    for name in names:
        if not target.exists(name):
            try:
                _create(target, name, source.read(name))
            except NotFoundError:
                continue


def _create(target: Storage, name: str, data: bytes) -> None:
    """Create an object; one that is there must be the same."""
    try:
        target.create(name, data)
    except AlreadyExistsError:
        if target.read(name) != data:
            raise
