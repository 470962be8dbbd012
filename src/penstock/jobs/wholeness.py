"""Are the files of state that an epoch names whole?

A start asks before its take-over is committed, and reads as little as it can:

    driver       lists the files: is one missing, or of another size? Changed since the manifest was written? Then it is read
    tasks        open their stores: a host without one reads all files, one with a store those that the store has not applied
    falling back reads every file of the newest epoch, then of the one before, until an epoch is whole

Laws:
- Nothing is committed on top of an epoch of which a file is known to be damaged.
- The error names the file, the epoch, and the newest epoch that is whole, if there is one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from penstock.diagnosis.invocation import Invocation
from penstock.errors import CorruptFileError, NotFoundError, PenstockError
from penstock.ids import Epoch, JobId, Milliseconds
from penstock.jobs.listing import epochs_in, state_files_in
from penstock.jobs.manifest import Manifest, StateLayout, load_manifest
from penstock.state.files.durable import FileRef, verify_file
from penstock.storage import Storage

log = logging.getLogger("penstock")

AT_ONCE = 4
"""Files read at a time: checksums are computed without the interpreter's lock."""


class Verified:
    """Files that were read to their end, with what was found: none is read twice."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._found: dict[tuple[str, str], PenstockError | None] = {}

    def read(self, refs: Iterable[FileRef]) -> tuple[FileRef, PenstockError] | None:
        """Read files; the first that is damaged."""
        wanted = {(ref.name, ref.checksum): ref for ref in refs}
        missing = [ref for key, ref in wanted.items() if key not in self._found]
        if missing:
            with ThreadPoolExecutor(AT_ONCE, "penstock-verify") as threads:
                for ref, error in zip(missing, threads.map(self._verify, missing), strict=True):
                    self._found[ref.name, ref.checksum] = error
        for key, ref in wanted.items():
            if (error := self._found[key]) is not None:
                return ref, error
        return None

    def _verify(self, ref: FileRef) -> PenstockError | None:
        try:
            verify_file(self._storage, ref)
        except (CorruptFileError, NotFoundError) as error:
            return error
        return None


def state_files(layout: StateLayout) -> list[FileRef]:
    """Every file of a layout."""
    return [ref for stage in layout.chains for chain in stage for ref in chain]


def check_files(
    storage: Storage,
    manifest: Manifest,
    written_ms: Milliseconds | None,
    *,
    thoroughly: bool,
    verified: Verified | None = None,
) -> None:
    """Raise `CorruptFileError` if a file is not what the manifest says.

    `written_ms`: when the manifest was written, by the storage's clock. Its files are older: one that is not is read.
    `thoroughly`: all are."""
    wanted = state_files(manifest.state)
    if not wanted:
        return
    there = {listed.path: listed for listed in state_files_in(storage)}
    suspect: list[FileRef] = []
    for ref in wanted:
        found = there.get(ref.name)
        if found is None or found.size != ref.size:
            wrong = "is missing" if found is None else f"has {found.size:,} bytes instead of {ref.size:,}"
            raise CorruptFileError(
                f"{storage.uri}/{ref.name}, which epoch {manifest.epoch} needs, {wrong}", hint="put it back from a copy"
            )
        if thoroughly or written_ms is None or found.modified_ms > written_ms:
            suspect.append(ref)
    check_content(storage, manifest.epoch, suspect, verified)


def check_content(storage: Storage, epoch: Epoch, refs: Iterable[FileRef], verified: Verified | None = None) -> None:
    """Read files that an epoch needs; raise `CorruptFileError` if one is damaged."""
    found = (verified or Verified(storage)).read(refs)
    if found is not None:
        ref, error = found
        raise CorruptFileError(
            f"{storage.uri}/{ref.name}, which epoch {epoch} needs, is damaged: {reason(error)}",
            detail=error.detail,
            hint="put it back from a copy",
        )


def reason(error: PenstockError) -> str:
    """What is wrong with a file, without its name."""
    return error.what.partition("cannot be used: ")[2] or error.what


def is_damaged(storage: Storage, message: str, refs: Iterable[FileRef]) -> bool:
    """Is a file that an error tells of really damaged? A read may have failed just once."""
    return Verified(storage).read(ref for ref in refs if ref.name in message) is not None


def newest_whole(storage: Storage, job: JobId) -> Epoch | None:
    """The newest epoch all of whose files are whole. Reads files; those that several epochs share once."""
    verified = Verified(storage)
    for epoch in reversed(list(epochs_in(storage).manifests)):
        try:
            manifest = load_manifest(storage, epoch)
            if manifest.job == job:
                check_files(storage, manifest, None, thoroughly=True, verified=verified)
                return epoch
        except (CorruptFileError, NotFoundError) as error:
            log.info("epoch %d is not whole: %s", epoch, error.what)
    return None


def with_way_out(storage: Storage, job: JobId, error: CorruptFileError, invocation: Invocation) -> CorruptFileError:
    """The error, with the newest epoch that is whole, and how to resume from there."""
    log.warning("%s; looking for the newest epoch that is whole", error.what)
    epoch = newest_whole(storage, job)
    if epoch is None:
        hint = (
            "put it back from a copy; no epoch that is kept is whole, so the job can otherwise only start from a savepoint or a "
            "mirror (--from SNAPSHOT)"
        )
    else:
        again = invocation.again_with("--fall-back")
        hint = f"put it back from a copy; or resume from epoch {epoch}, the newest that is whole: {again}"
    return CorruptFileError(error.what, detail=error.detail, hint=hint)
