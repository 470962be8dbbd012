"""Draining: all time ends, as at the end of bounded input, and the job is over.

    … → all that has run is committed → one epoch: no input, every watermark at the end of time → finished

Laws:
- What a drained job has published is what a bounded run over the input that it has read would have.
- The drain is an epoch of its own. Until it is committed the job can continue as ever; from then on it is finished.
- A drained job does not resume from its drain: every further record would be late. It can go back to the epoch before.
"""

from __future__ import annotations

from penstock.epochs.starting.output_replacement import describe
from penstock.errors import DrainedError
from penstock.ids import Epoch
from penstock.jobs.manifest import Manifest
from penstock.jobs.terms import find_head
from penstock.storage import Storage


def why_not_drain(head: Manifest) -> str:
    """Why the job cannot be drained now; empty if it can. Pure."""
    under_way = describe(head.repair)
    return f"it cannot be drained in the middle of a repair ({under_way})" if under_way else ""


def check_not_drained(storage: Storage) -> None:
    """Refuse to resume from a drain, before anything is written. One with output still to publish is taken over, for that."""
    head = find_head(storage, fall_back=True)
    manifest = head.manifest
    if manifest is None or manifest.drained is None or manifest.epoch in head.undone:
        return
    kept = storage.uri if manifest.drained in head.epochs else ""
    raise drained("this job", manifest.epoch, manifest.drained, kept)


def drained(what: str, epoch: Epoch, before: Epoch, home: str) -> DrainedError:
    """`home`: where the epoch before the drain is; empty if it is not kept."""
    if home:
        hint = f"start it from the epoch before the drain, whose output is then taken back: --from {home}@{before}"
    else:
        hint = f"epoch {before}, before the drain, is no longer kept: start from a savepoint made before it"
    return DrainedError(
        f"{what} was drained: its event time ended with epoch {epoch}",
        detail="its windows are closed and its timers have fired: every further record would be late",
        hint=f"{hint}; or start a new job with a storage of its own",
    )
