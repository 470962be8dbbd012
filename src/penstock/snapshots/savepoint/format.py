"""A savepoint: a folder that needs nothing outside of itself, wherever it is copied.

    savepoint.json      what it is, of what, and the files with their checksums; created last
    state/3-fire-alarm-last.parquet      one state (`state_file.py`)
    making.json         while it is being made: by whom (`target_folder.py`)

Laws:
- Without `savepoint.json` there is no savepoint. It is created exclusively, when every file it names is whole.
- It carries its version and a checksum of its content; a damaged one is an error.
- No path in it leads out of the folder. Where the job's storage was is only for people.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any
from zlib import crc32

import msgspec

from penstock.errors import AlreadyExistsError, CorruptFileError, NotFoundError, StateError, StorageError
from penstock.failpoints import fail_point
from penstock.ids import Epoch, JobId, Milliseconds
from penstock.jobs.left_out import LeftOut
from penstock.jobs.manifest import Restored, SourceState, StateInfo
from penstock.jobs.paths import is_state_file
from penstock.snapshots.savepoint.state_file import StateFile, StateWriter, read_state, read_tables
from penstock.snapshots.savepoint.target_folder import SAVEPOINT, STATE, claimed
from penstock.state.key_groups import CRC32, KeyGroups
from penstock.storage import Storage
from penstock.storage.documents import MANIFEST_BYTES, UNREADABLE, read_small

__all__ = [
    "SAVEPOINT",
    "SavedJob",
    "SavedState",
    "SavepointInfo",
    "SavepointWriter",
    "StateFile",
    "StateWriter",
    "read_info",
    "read_state",
    "read_tables",
]

VERSIONS = (1, 2, 3, 4)
"""2: keys are grouped by another `key_hash` than 1. 3: a source has a rest. 4: a state is not kept by key. Otherwise 1 is
written, and an older Penstock can read it."""


_ABOUT = (
    *("job", "epoch", "program", "config", "parent", "processing_time", "finished", "drained", "sources", "watermarks"),
    "left_out",
)


class SavedJob(msgspec.Struct, frozen=True):
    """The job that a savepoint is of."""

    uuid: JobId
    name: str
    storage: str = ""
    """Where it was, for people."""


class SavedState(msgspec.Struct, frozen=True):
    """A state and its files. `next_due`: nothing of it is due before; None: nothing at all."""

    number: int
    info: StateInfo
    next_due: Milliseconds | None
    files: list[StateFile]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class SavepointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What `savepoint.json` says. `uri` is not in it: it is where the savepoint was found."""

    version: int
    identity: str
    created_ms: Milliseconds
    job: SavedJob
    epoch: Epoch
    max_parallelism: int
    key_hash: int = CRC32
    program: str = ""
    config: dict[str, Any] = {}
    parent: Restored | None = None
    processing_time: Milliseconds = 0
    finished: bool = False
    drained: Epoch | None = None
    sources: dict[str, SourceState] = {}
    watermarks: dict[str, Milliseconds] = {}
    left_out: LeftOut = LeftOut()
    states: list[SavedState] = []
    uri: str = ""

    @property
    def key_groups(self) -> KeyGroups:
        return KeyGroups(self.max_parallelism, self.key_hash)

    @property
    def rows(self) -> int:
        return sum(state.rows for state in self.states)

    @property
    def bytes(self) -> int:
        """Of the state files."""
        return sum(state.bytes for state in self.states)

    def about(self) -> dict[str, Any]:
        """What is said of job and epoch, for a savepoint that is made from this one."""
        return {name: getattr(self, name) for name in _ABOUT}


class SavepointWriter:
    """Makes a savepoint in an empty folder. Left without `finish`, nothing that could be taken for a savepoint remains.

    with SavepointWriter(storage, key_groups=KeyGroups(128, NEW_JOBS)) as savepoint:
        counts = savepoint.state(info)
        counts.group(0, raw_keys, raw_values)
        savepoint.finish(job=..., epoch=...)
    """

    def __init__(self, storage: Storage, *, key_groups: KeyGroups, identity: str | None = None) -> None:
        self.storage = storage
        self.key_groups = key_groups
        self.identity = identity or uuid.uuid4().hex
        self._claim = claimed(storage, self.identity)
        self._check_claim: Callable[[], None] | None = None
        self._open: list[tuple[StateWriter, Milliseconds | None]] = []
        self._states: list[SavedState] = []
        self._finished = False

    def __enter__(self) -> SavepointWriter:
        self._check_claim = self._claim.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        reason = error or (None if self._finished else StateError(f"the savepoint {self.storage.uri} was not finished"))
        left, self._open = self._open, []
        try:
            for writer, _ in left:
                writer.abandon(reason or StateError("left open"))
        finally:
            self._check_claim = None
            if reason is None:
                self._claim.__exit__(None, None, None)
            elif not self._claim.__exit__(type(reason), reason, reason.__traceback__) and error is None:
                raise reason

    def state(self, info: StateInfo, *, number: int | None = None, next_due: Milliseconds | None = None) -> StateWriter:
        """A writer for one more state. Without `number` it is the next; without `next_due`, the keys tell."""
        if self._check_claim is None:
            raise StateError("a SavepointWriter is used in a with-block")
        taken = {state.number for state in self._states} | {writer.number for writer, _ in self._open}
        if number is None:
            number = max(taken, default=0) + 1
        elif number in taken:
            raise StateError(f"two states of a savepoint have the number {number}")
        path = state_path(number, info)
        writer = StateWriter(self.storage, path, self.identity, number, info, self.key_groups)
        self._open.append((writer, next_due))
        return writer

    def add(self, state: SavedState) -> None:
        """A state whose files were written elsewhere."""
        self._states.append(state)

    def finish(self, *, job: SavedJob, epoch: Epoch, **about: Any) -> SavepointInfo:
        """All states are written: the folder becomes a savepoint. `about`: see `SavepointInfo.about`."""
        if self._check_claim is None:
            raise StateError("a SavepointWriter is used in a with-block")
        while self._open:
            writer, next_due = self._open[0]
            file = writer.close()
            self._open.pop(0)
            fail_point("savepoint:state")
            self._states.append(SavedState(writer.number, writer.info, writer.next_due if next_due is None else next_due, [file]))
        info = SavepointInfo(
            version=version_of(self.key_groups.hash, about.get("sources", {}), [state.info for state in self._states]),
            identity=self.identity,
            created_ms=round(time.time() * 1000),
            job=job,
            epoch=epoch,
            max_parallelism=self.key_groups.count,
            key_hash=self.key_groups.hash,
            states=sorted(self._states, key=lambda state: state.number),
            uri=self.storage.uri,
            **about,
        )
        fail_point("savepoint:before-json")
        self._check_claim()
        self._publish(info)
        self._finished = True
        return info

    def _publish(self, info: SavepointInfo) -> None:
        data = encode_info(info)
        try:
            self.storage.create(SAVEPOINT, data)
        except (AlreadyExistsError, StorageError):
            # A repeated request may find its own object: what is there decides.
            try:
                if self.storage.read(SAVEPOINT) == data:
                    return
            except NotFoundError:
                pass
            raise


def version_of(key_hash: int, sources: Mapping[str, SourceState], states: Iterable[StateInfo]) -> int:
    """The format that a savepoint is of."""
    if any(info.scope != "keyed" for info in states):
        return VERSIONS[3]
    if any(state.rest for state in sources.values()):
        return VERSIONS[2]
    return VERSIONS[0] if key_hash == CRC32 else VERSIONS[1]


def state_path(number: int, info: StateInfo, part: int | None = None) -> str:
    """Where a state is. `part`: of several files."""
    name = "-".join([str(number), _slug(info.step), _slug(info.name)])
    return f"{STATE}/{name}.parquet" if part is None else f"{STATE}/{name}.{part:03d}.parquet"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")[:40]


def encode_info(info: SavepointInfo) -> bytes:
    """Indented, with a crc of everything between the outermost braces' `savepoint` and the end."""
    plain = msgspec.to_builtins(info)
    del plain["uri"]
    whole = msgspec.json.format(msgspec.json.encode({"crc": 0, "savepoint": plain}), indent=2)
    head, name, body = whole.partition(b'"savepoint": ')
    body = body.removesuffix(b"\n}")
    return head.replace(b'"crc": 0', b'"crc": %d' % crc32(body)) + name + body + b"\n}\n"


_HEAD = re.compile(rb'\{\n  "crc": (\d+),\n  "savepoint": ')


def decode_info(data: bytes, uri: str) -> SavepointInfo:
    """The inverse, checked."""
    where = f"{uri}/{SAVEPOINT}"
    head = _HEAD.match(data)
    body = data[head.end() :].removesuffix(b"\n}\n") if head is not None else b""
    if head is None or not data.endswith(b"\n}\n") or int(head[1]) != crc32(body):
        raise CorruptFileError(
            f"{where} is damaged",
            detail=f"{len(data)} bytes, checksum does not match",
            hint="copy the savepoint again from where it is whole; to change one, read it and write a new one",
        )
    try:
        version = msgspec.json.decode(body, type=_Versioned).version
    except UNREADABLE as error:
        raise CorruptFileError(f"{where} cannot be read", detail=str(error)) from error
    if version not in VERSIONS:
        raise CorruptFileError(
            f"{where} is of format {version}; this Penstock reads formats up to {VERSIONS[-1]}",
            hint="use the version of Penstock that made it, or a newer one",
        )
    try:
        info = msgspec.structs.replace(msgspec.json.decode(body, type=SavepointInfo), uri=uri)
    except UNREADABLE as error:
        raise CorruptFileError(f"{where} cannot be read", detail=str(error)) from error
    for file in (file for state in info.states for file in state.files):
        if not is_state_file(file.path):
            raise CorruptFileError(
                f"{where} names an impossible state file: {file.path!r}",
                hint="it was not written by Penstock: find out where the savepoint comes from",
            )
    return info


class _Versioned(msgspec.Struct):
    version: int


def read_info(storage: Storage) -> SavepointInfo:
    """What the savepoint in this storage is; an error if there is none."""
    try:
        data = read_small(storage, SAVEPOINT, MANIFEST_BYTES)
    except NotFoundError as error:
        begun = next(iter(storage.list(STATE)), None) is not None
        raise NotFoundError(
            f"{storage.uri} holds no savepoint",
            detail="it has state files but no savepoint.json: it was never finished" if begun else f"there is no {SAVEPOINT}",
            hint="make it again" if begun else "give the folder that `penstock savepoint` printed",
        ) from error
    return decode_info(data, storage.uri)
