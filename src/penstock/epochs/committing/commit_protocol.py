"""Making an epoch durable: manifest, sinks, done mark, in this order.

The manifest is the commit point. A driver that finds a manifest without a done mark finishes its sinks: committing them again is
harmless.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.connectors.protocol import Committer
from penstock.errors import AlreadyExistsError, NotFoundError, PenstockError, SinkError, StorageError
from penstock.failpoints import fail_point
from penstock.ids import Epoch, StepId
from penstock.jobs import paths
from penstock.jobs.manifest import Manifest, decode_manifest, encode_manifest
from penstock.jobs.terms import check_not_fenced, fenced
from penstock.storage import Storage
from penstock.storage.documents import MANIFEST_BYTES, read_small


def write_manifest(storage: Storage, manifest: Manifest) -> None:
    """Create the manifest; raise `FencedError` if another driver was there first."""
    path = paths.manifest(manifest.epoch)
    fail_point("manifest:before")
    try:
        storage.create(path, encode_manifest(manifest))
    except AlreadyExistsError:
        _adopt(storage, manifest, path)
    except StorageError as error:
        # The outcome is not known: what is there decides.
        try:
            _adopt(storage, manifest, path)
        except NotFoundError:
            raise error from None
    fail_point("manifest:after")
    check_not_fenced(storage, manifest.epoch)


def _adopt(storage: Storage, manifest: Manifest, path: str) -> None:
    found = decode_manifest(read_small(storage, path, MANIFEST_BYTES), path)
    if (found.term, found.plan) != (manifest.term, manifest.plan):
        raise fenced(manifest.epoch)


def commit_sinks(
    committers: Mapping[StepId, Committer], committables: Mapping[str, Sequence[object]], publication: Epoch
) -> None:
    """Publish what an epoch staged."""
    for step, items in sorted(committables.items()):
        committer = committers.get(StepId(step))
        if committer is None:
            raise SinkError(
                f"epoch {publication} has output for the sink {step!r}, which the program no longer has",
                hint="run the old program once with --until-idle, then start the new one",
            )
        try:
            committer.commit(publication, list(items))
        except PenstockError:
            raise
        except Exception as error:
            raise SinkError(
                f"the sink {step!r} could not commit epoch {publication}: {type(error).__name__}: {error}",
                hint="the output is staged and will be committed when the job starts again",
            ) from error
        fail_point("sink:committed")


def mark_done(storage: Storage, epoch: Epoch) -> None:
    """The epoch's sinks are committed. A mark that is lost is made again by the next driver."""
    fail_point("done:before")
    try:
        storage.create(paths.done(epoch), b"", durable=False)
    except AlreadyExistsError:
        pass
