"""What people write to name a snapshot: a savepoint's folder, a job's storage, `JOB@EPOCH`, `JOB@latest`, or `latest`; and where
that leads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from penstock.errors import ConfigError, NotFoundError
from penstock.ids import Epoch
from penstock.jobs import paths
from penstock.snapshots.savepoint.target_folder import SAVEPOINT
from penstock.storage import Storage, open_storage

LATEST: Final = "latest"

_JOB_EPOCH = re.compile(r"(?P<job>.*)@(?P<epoch>\d+|latest)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reference:
    """A snapshot by name. `place`: the savepoint's or the job's storage, empty for the own one; `epoch`: None for the newest."""

    kind: Literal["savepoint", "epoch", "latest"]
    place: str = ""
    epoch: Epoch | None = None


def parse_reference(text: str) -> Reference:
    """
    >>> parse_reference("jobs/rooms@57")
    Reference(kind='epoch', place='jobs/rooms', epoch=57)
    """
    if not text.strip():
        raise ConfigError("the name of the snapshot is empty", hint="give a savepoint's folder, JOB@EPOCH, or latest")
    if text == LATEST:
        return Reference(LATEST)
    match = _JOB_EPOCH.fullmatch(text)
    if match is None:
        return Reference("savepoint", text)
    return Reference("epoch", match["job"], None if match["epoch"] == "latest" else Epoch(int(match["epoch"])))


@dataclass(frozen=True, slots=True)
class Located:
    """The storage of a savepoint, or of a job. `epoch`: of a job, None for the newest."""

    storage: Storage
    is_savepoint: bool
    epoch: Epoch | None = None


def locate(text: str, *, own: Storage | None = None, name: str = "") -> Located:
    """Where a reference leads. In `own`, the storage of job `name`, both `@EPOCH` and `NAME@EPOCH` are epochs of it."""
    reference = parse_reference(text)
    if reference.kind == "latest" or (own is None and not reference.place):
        raise NotFoundError(f"{text!r} of which job?", hint="give the job's storage, or JOB@latest")
    if own is not None and reference.kind == "epoch" and reference.place in ("", name):
        place = own
    else:
        place = open_storage(reference.place)
    if reference.kind == "savepoint" and place.exists(SAVEPOINT):
        return Located(place, is_savepoint=True)
    if place.exists(paths.JOB):
        return Located(place, is_savepoint=False, epoch=reference.epoch)
    if reference.kind == "epoch":
        if (named := open_storage(text)).exists(SAVEPOINT):  # a folder may have such a name
            return Located(named, is_savepoint=True)
        raise NotFoundError(
            f"{place.uri} holds no job",
            hint="in JOB@EPOCH, JOB is the job's storage; `penstock jobs ROOT` lists those below a folder",
        )
    begun = next(iter(place.list("state")), None) is not None
    raise NotFoundError(
        f"{place.uri} holds neither a savepoint nor a job",
        detail="it has state files but no savepoint.json: it was never finished" if begun else "",
        hint="give a savepoint's folder, or a job's storage; `penstock jobs ROOT` lists the jobs below a folder",
    )
