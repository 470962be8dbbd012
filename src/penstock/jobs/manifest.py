"""The epoch manifest: the only commit point.

Everything an epoch changed becomes visible when its manifest exists, and is described by it: positions, state files, timers,
watermarks, staged sink output. A manifest carries its version and a checksum of its own content; a damaged one is an error,
never an empty start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.connectors.protocol import Split
from penstock.errors import CorruptFileError, NotFoundError
from penstock.ids import MAX_WATERMARK, Epoch, JobId, Milliseconds, Term
from penstock.jobs import paths
from penstock.jobs.left_out import LeftOut, together
from penstock.jobs.source_order import SourceOrder, TableVersion
from penstock.jobs.step_metrics import StepMetrics
from penstock.state.entries.state_info import StateInfo as StateInfo
from penstock.state.files.durable import FileRef
from penstock.state.key_groups import CRC32, KeyGroups
from penstock.storage import Storage
from penstock.storage.documents import MANIFEST_BYTES, UNREADABLE, read_small
from penstock.storage.sealed import enclose, enclosed

VERSIONS = (1, 2, 3, 4)
"""2: keys are grouped by another `key_hash` than 1. 3: a source has a rest. 4: a state is not kept by key. Otherwise 1 is
written, and an older Penstock can resume the job."""


class SourceState(msgspec.Struct, frozen=True):
    """A source after the epoch. `kind`: what its position is of; a source of another kind cannot resume from it.

    `rest`: what lies before the position and has not been read, by source partition; `skip`: of the first split of such a rest so
    many rows have been read. `last`: the latest time of partitions that are over.

    `shed`, `shed_estimated` and `shed_pieces`: input that is never read, as `LeftOut` counts it, since the job began."""

    position: Any = None
    clocks: dict[str, Any] = {}
    idle: list[str] = []
    active_ms: dict[str, Milliseconds] = {}
    ended: bool = False
    shed: int = 0
    kind: str = ""
    shed_estimated: bool = False
    shed_pieces: int = 0
    rest: dict[str, list[Split]] = {}
    skip: dict[str, int] = {}
    last: Milliseconds | None = None

    @property
    def left_out(self) -> LeftOut:
        return LeftOut(shed=self.shed, estimated=self.shed_estimated, pieces=self.shed_pieces)

    def without(self, unread: LeftOut) -> SourceState:
        """The same, with more input that is never read."""
        total = self.left_out.plus(unread)
        return msgspec.structs.replace(self, shed=total.shed, shed_estimated=total.estimated, shed_pieces=total.pieces)


class StateLayout(msgspec.Struct, frozen=True):
    """All keyed state: files by stage and partition, next due timers likewise, and what the state ids stand for.

    `made_in` is the term in which the files were last dealt out anew to the partitions. `last_id`: the highest
    state id ever given. `known_as`: the names by which targets and
    feeds know the job's sinks and sources; a step that was renamed keeps the one it had. `key_hash`: the version of the hash that
    keys are grouped by."""

    parallelism: int
    max_parallelism: int
    fingerprint: str
    ids: dict[str, StateInfo] = {}
    stages: list[list[int]] = []
    chains: list[list[list[FileRef]]] = []
    next_due: list[list[dict[int, Milliseconds]]] = []
    made_in: int = 0
    last_id: int = 0
    known_as: dict[str, str] = {}
    key_hash: int = CRC32

    @property
    def key_groups(self) -> KeyGroups:
        return KeyGroups(self.max_parallelism, self.key_hash)


class Restored(msgspec.Struct, frozen=True):
    """What a job was last started from, other than its own newest epoch; carried on from manifest to manifest.

    `source`: the savepoint's URI, or the job's and an epoch, as `URI@EPOCH`; `identity`: of the savepoint, or `job uuid@epoch`;
    `at`: the take-over epoch that began with it.
    """

    source: str
    identity: str
    epoch: Epoch
    at: Epoch


class Rewind(msgspec.Struct, frozen=True):
    """A take-over that resumes from an earlier epoch than the newest: `to`, or 0; `beyond` is the newest that is given up.

    `repair`: sinks that can keep the old output visible until the new one has caught up.
    """

    to: Epoch
    beyond: Epoch
    repair: bool = False


class Repair(msgspec.Struct, frozen=True):
    """Output published after epoch `to` is being replaced; carried on from manifest to manifest.

    `at`: the take-over epoch that began it; `until`: the sources' positions at the old head (None: not known); `done`: the epoch
    in which all of them were reached.
    """

    to: Epoch
    at: Epoch
    until: dict[str, Any] | None = None
    done: Epoch | None = None


class InFlight(msgspec.Struct, frozen=True):
    """What is in a loop after an epoch; `waits`: time has not got through it yet."""

    records: int
    waits: bool = False


class EpochInput(msgspec.Struct, frozen=True):
    """What an epoch was given, enough to run it again. `epoch` is that of the manifest it was committed by."""

    epoch: Epoch
    plan: int
    processing_time: Milliseconds
    read: dict[str, SourceOrder] = {}
    final: bool = False
    tables: dict[str, TableVersion] = {}
    laps: int = 1


def time_has_ended(manifest: Manifest) -> bool:
    """Has time ended in the loops of the job, whatever is in them?"""
    return bool(manifest.loops) and all(manifest.watermarks.get(loop) == MAX_WATERMARK for loop in manifest.loops)


def version_of(layout: StateLayout, sources: Mapping[str, SourceState]) -> int:
    """The format that a manifest with this state and these sources is of."""
    if any(info.scope != "keyed" for info in layout.ids.values()):
        return VERSIONS[3]
    if any(state.rest for state in sources.values()):
        return VERSIONS[2]
    return VERSIONS[0] if layout.key_hash == CRC32 else VERSIONS[1]


class Manifest(msgspec.Struct, frozen=True):
    """An epoch, committed. `earlier`: the epochs before it that were committed with it and have no manifest of their own."""

    version: int
    job: JobId
    epoch: Epoch
    term: Term
    plan: int
    parent: Epoch | None
    processing_time: Milliseconds
    created_ms: Milliseconds
    sources: dict[str, SourceState]
    watermarks: dict[str, Milliseconds]
    state: StateLayout
    committables: dict[str, list[Any]] = {}
    read: dict[str, SourceOrder] = {}
    metrics: dict[str, StepMetrics] = {}
    finished: bool = False
    program: str = ""
    """The program's hash: see `penstock.compile.programs`."""
    restored: Restored | None = None
    earlier: list[EpochInput] = []
    back: Rewind | None = None
    """Of a take-over epoch only."""
    repair: Repair | None = None
    drained: Epoch | None = None
    """The job was drained by this epoch: all time has ended. The epoch before the drain, which the job can go back to."""
    loops: dict[str, InFlight] = {}
    """By loop, what is in it. The records themselves are state. Of a loop that is not here it is not known."""
    laps: int = 1
    """How often the stages at the ends of loops were run."""
    left_out: LeftOut = LeftOut()
    """What steps left out since the job began; what was shed is in `sources`."""
    tables: dict[str, TableVersion] = {}
    """By step, the table that it looked up in."""

    @property
    def left_out_in_all(self) -> LeftOut:
        """Since the job began: of steps and sources."""
        return together([self.left_out, *(state.left_out for state in self.sources.values())])


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Manifest)


def encode_manifest(manifest: Manifest) -> bytes:
    return enclose("manifest", _encode(manifest))


def decode_manifest(data: bytes, path: str) -> Manifest:
    body = enclosed("manifest", data)
    if body is None:
        raise CorruptFileError(
            f"the manifest {path} is damaged",
            detail=f"{len(data)} bytes, checksum does not match",
            hint="restore the file from a backup, or start from the newest whole epoch with --fall-back",
        )
    try:
        manifest = _decode.decode(body)
    except UNREADABLE as error:
        raise _unreadable(body, path, error) from error
    if manifest.version not in VERSIONS:
        raise _future(manifest.version, path)
    _check_names(manifest.state, path)
    if manifest.epoch != paths.epoch_of_manifest(path):
        raise CorruptFileError(f"{path} is the manifest of epoch {manifest.epoch}: files were mixed up")
    return manifest


def _check_names(layout: StateLayout, path: str) -> None:
    for stage in layout.chains:
        for chain in stage:
            for ref in chain:
                if not paths.is_state_file(ref.name):
                    raise CorruptFileError(
                        f"the manifest {path} names an impossible state file: {ref.name!r}",
                        hint="it was not written by Penstock: find out who can write to the storage",
                    )


def _unreadable(body: bytes, path: str, error: Exception) -> CorruptFileError:
    try:
        version = msgspec.json.decode(body).get("version")
    except Exception:
        version = None
    if isinstance(version, int) and version > VERSIONS[-1]:
        return _future(version, path)
    return CorruptFileError(f"the manifest {path} cannot be read", detail=str(error))


def _future(version: int, path: str) -> CorruptFileError:
    return CorruptFileError(
        f"the manifest {path} is of format {version}; this Penstock reads formats up to {VERSIONS[-1]}",
        hint="run the job with the version of Penstock that wrote it, or a newer one",
    )


def load_manifest(storage: Storage, epoch: Epoch) -> Manifest:
    path = paths.manifest(epoch)
    try:
        return decode_manifest(read_small(storage, path, MANIFEST_BYTES), path)
    except NotFoundError as error:
        raise CorruptFileError(f"the manifest {path} is missing", hint="something other than Penstock removed it") from error
