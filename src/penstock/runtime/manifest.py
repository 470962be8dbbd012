"""The epoch manifest: the only commit point.

Everything an epoch changed becomes visible when its manifest exists, and is described by it: positions, state files, timers,
watermarks, staged sink output. A manifest carries its version and a checksum of its own content; a damaged one is an error,
never an empty start.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

import msgspec

from penstock import paths
from penstock.errors import CorruptFileError, NotFoundError
from penstock.ids import Epoch, JobId, Milliseconds, Term
from penstock.runtime.orders import SourceOrder, StepMetrics
from penstock.state.files import FileRef
from penstock.storage import Storage

VERSION = 1


class SourceState(msgspec.Struct, frozen=True):
    """A source after the epoch. `kind`: what its position is of; a source of another kind cannot go on from it."""

    position: Any = None
    clocks: dict[str, Any] = {}
    idle: list[str] = []
    active_ms: dict[str, Milliseconds] = {}
    ended: bool = False
    shed: int = 0
    kind: str = ""


class StateInfo(msgspec.Struct, frozen=True):
    """A declared state: enough to check an upgrade, and to read the state, without running anything.

    `earlier`: schemas that stored values may still have; `sub_schema`: of the keys of a map; `ttl`: values begin with the time
    they expire, by the clock `ttl_time`; `namespace`: so many bytes (a window) follow the key; `key_fields`: what the key is made
    of, None if a function makes it.
    """

    step: str
    name: str
    kind: str
    schema: Any = None
    key_schema: Any = None
    what: str = ""
    earlier: list[Any] = []
    sub_schema: Any = None
    ttl: bool = False
    namespace: int = 0
    ttl_time: str = ""
    key_fields: list[str | int] | None = None


class StateLayout(msgspec.Struct, frozen=True):
    """All keyed state: files by stage and partition, next due timers likewise, and what the state ids stand for.

    `made_in` is the term in which the files were last dealt out anew to the partitions. `last_id`: the highest
    state id ever given. `known_as`: the names by which targets and
    feeds know the job's sinks and sources; a step that was renamed keeps the one it had."""

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


class Restored(msgspec.Struct, frozen=True):
    """What a job was last started from, other than its own newest epoch; carried on from manifest to manifest.

    `source`: the savepoint's URI, or the job's and an epoch, as `URI@EPOCH`; `identity`: of the savepoint, or `job uuid@epoch`;
    `at`: the take-over epoch that began with it.
    """

    source: str
    identity: str
    epoch: Epoch
    at: Epoch


class WentBack(msgspec.Struct, frozen=True):
    """A take-over that goes on from an earlier epoch than the newest: `to`, or 0; `beyond` is the newest that is given up.

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


class EpochInput(msgspec.Struct, frozen=True):
    """What an epoch was told, enough to run it again. `epoch` is that of the manifest it was committed by."""

    epoch: Epoch
    plan: int
    processing_time: Milliseconds
    read: dict[str, SourceOrder] = {}
    final: bool = False


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
    """The program's hash: see `penstock.programs`."""
    restored: Restored | None = None
    earlier: list[EpochInput] = []
    back: WentBack | None = None
    """Of a take-over epoch only."""
    repair: Repair | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Manifest)


def encode_manifest(manifest: Manifest) -> bytes:
    body = _encode(manifest)
    return b'{"crc":%d,"manifest":' % crc32(body) + body + b"}\n"


def decode_manifest(data: bytes, path: str) -> Manifest:
    head, _, rest = data.partition(b',"manifest":')
    body = rest[:-2]
    if not head.startswith(b'{"crc":') or rest[-2:] != b"}\n" or not head[7:].isdigit() or int(head[7:]) != crc32(body):
        raise CorruptFileError(
            f"the manifest {path} is damaged",
            detail=f"{len(data)} bytes, checksum does not match",
            hint="restore the file from a backup, or start from the newest whole epoch with --fall-back",
        )
    try:
        manifest = _decode.decode(body)
    except msgspec.MsgspecError as error:
        raise _unreadable(body, path, error) from error
    if manifest.version != VERSION:
        raise _future(manifest.version, path)
    if manifest.epoch != paths.epoch_number(path):
        raise CorruptFileError(f"{path} is the manifest of epoch {manifest.epoch}: files were mixed up")
    return manifest


def _unreadable(body: bytes, path: str, error: Exception) -> CorruptFileError:
    try:
        version = msgspec.json.decode(body).get("version")
    except Exception:
        version = None
    if isinstance(version, int) and version > VERSION:
        return _future(version, path)
    return CorruptFileError(f"the manifest {path} cannot be read", detail=str(error))


def _future(version: int, path: str) -> CorruptFileError:
    return CorruptFileError(
        f"the manifest {path} is of format {version}; this Penstock reads format {VERSION}",
        hint="run the job with the version of Penstock that wrote it, or a newer one",
    )


def load_manifest(storage: Storage, epoch: Epoch) -> Manifest:
    path = paths.manifest(epoch)
    try:
        return decode_manifest(storage.read(path), path)
    except NotFoundError as error:
        raise CorruptFileError(
            f"the manifest {path} is missing", hint="it was removed by something else than Penstock"
        ) from error
