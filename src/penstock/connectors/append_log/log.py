"""`AppendLog`: appends records durably to the log of a job's source. Any number of them, in any processes, for one log.

    append → waits for the segment before to be written → one segment with all that wait → synced → answered

Laws:
- What was answered is in the log once, for good, and survives a power cut.
- An append with an id that is in the log already is answered as it was then, and not made again.
- What was not answered is in the log whole, or not at all; to send it again with its id is always safe.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import msgspec

from penstock.connectors.append_log.fields import Fields, decoder_of
from penstock.connectors.append_log.segment import (
    FIELDS,
    LOG,
    Append,
    Header,
    LogIdentity,
    encode_segment,
    folder_of,
    segment_name,
)
from penstock.connectors.append_log.tail import Tail
from penstock.errors import AlreadyExistsError, NotFoundError, PenstockError, SourceError
from penstock.failpoints import fail_point
from penstock.storage import Storage, open_storage
from penstock.storage.documents import LIST_BYTES, NOTE_BYTES, decode_json, read_small

SEGMENT_BYTES = 4 << 20
"""No more appends are put into a segment that has so much."""
APPEND_BYTES = 16 << 20
WAITING_BYTES = 64 << 20
EVERY_S = 0.01
"""Between the beginnings of two segments: those who append all the time make few files."""
LONGEST_ID = 200
_FIELDS_EVERY_S = 5.0
_LOOK_AGAIN_S = 60.0
"""After so long without an append it is looked anew what there is in the log: what is known of it may have been removed."""


class RefusedAppendError(SourceError, ValueError):
    """The records, or their id, cannot be appended: sending them again does not help."""


class FullLogError(SourceError):
    """More waits to be written than the storage can take: send it again, later."""


class NoLogError(SourceError, LookupError):
    """The job has no source of that name that is appended to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """An append that is durable. `position`: for reading one's own writes; `repeated`: it had been made before."""

    source: str
    end: int
    records: int
    repeated: bool = False

    @property
    def position(self) -> str:
        """As `SOURCE:RECORDS`.

        >>> Appended(source="orders", end=7, records=2).position
        'orders:7'
        """
        return f"{self.source}:{self.end}"


@dataclass(slots=True, eq=False)
class _Waiting:
    lines: bytes
    append: Append
    answer: Future[Appended] = field(default_factory=Future)
    made: bool = False
    """By this process, just now."""


class AppendLog:
    """The log of the source `source` of the job in `storage`. May be used by several threads; to be closed."""

    def __init__(self, storage: str | Storage, source: str) -> None:
        job = open_storage(storage) if isinstance(storage, str) else storage
        self.source = source
        self._log = job.child(folder_of(source))
        try:
            identity = decode_json(read_small(self._log, LOG, NOTE_BYTES), LogIdentity, LOG)
        except NotFoundError:
            raise NoLogError(
                f"the job has no source {source!r:.200} that is appended to",
                detail=job.uri,
                hint="its source is an AppendLogSource, named name=, and the job has been started",
            ) from None
        self.identity = identity.id
        self._tail: Tail | None = None
        self._decoder = decoder_of(Fields())
        self._looked = -_FIELDS_EVERY_S
        self._durable = 1
        """Segments below this number are known to be in the log for good."""
        self._changed = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    def append(self, records: Iterable[Any], *, id: str | None = None) -> Appended:
        """Append records: objects that become JSON. Returns when they are durable."""
        try:
            encoded = [msgspec.json.encode(record) for record in records]
        except (TypeError, ValueError, RecursionError) as error:
            raise RefusedAppendError("a record cannot be written as JSON", detail=str(error)[:500]) from error
        return self.submit(encoded, id=id).result()

    def submit(self, records: list[bytes], *, id: str | None = None) -> Future[Appended]:
        """Append records that are JSON texts already. The answer comes when they are durable."""
        waiting = self._checked(records, id)
        with self._changed:
            if self._closed:
                raise SourceError("the log is closed")
            if self._bytes + len(waiting.lines) > WAITING_BYTES:
                raise FullLogError("too much is waiting to be written", hint="send it again in a moment, with the same id")
            self._waiting.append(waiting)
            self._bytes += len(waiting.lines)
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="penstock-append", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return waiting.answer

    def close(self) -> None:
        """What waits is written first."""
        self.abandon()
        if self._thread is not None:
            self._thread.join()

    def abandon(self) -> None:
        """Take no more, and do not wait for what is under way."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def __enter__(self) -> AppendLog:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # --- what comes in

    def _checked(self, records: list[bytes], id: str | None) -> _Waiting:
        if id is not None and not 0 < len(id) <= LONGEST_ID:
            raise RefusedAppendError(f"an id has 1 to {LONGEST_ID} characters, not {len(id)}")
        if not records:
            raise RefusedAppendError("there is nothing to append", hint="give one record or more")
        self._look_at_fields()
        lines = []
        for number, record in enumerate(records):
            try:
                self._decoder.decode(record)
                lines.append(msgspec.json.format(record, indent=-1))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise RefusedAppendError(
                    f"record {number} is not what the source reads",
                    detail=str(error)[:200],
                    hint="a record is a JSON object, with the fields of the source's schema",
                ) from None
        text = b"\n".join(lines) + b"\n"
        if len(text) > APPEND_BYTES:
            raise RefusedAppendError(f"{len(text):,} bytes are more than one append may have: {APPEND_BYTES:,}")
        return _Waiting(text, Append(id or uuid.uuid4().hex, len(lines), crc32(text)))

    def _look_at_fields(self) -> None:
        """The schema may be another one after an upgrade of the job."""
        now = time.monotonic()
        if now - self._looked < _FIELDS_EVERY_S:
            return
        self._looked = now
        try:
            self._decoder = decoder_of(decode_json(read_small(self._log, FIELDS, LIST_BYTES), Fields, FIELDS))
        except NotFoundError:
            self._decoder = decoder_of(Fields())

    # --- the thread that writes

    def _serve(self) -> None:
        began = 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if not self._waiting:
                    return
            pause = EVERY_S - (time.monotonic() - began)
            if pause > 0:
                time.sleep(pause)
            if time.monotonic() - began > _LOOK_AGAIN_S:
                self._tail = None
            began = time.monotonic()
            with self._changed:
                group: list[_Waiting] = []
                size = 0
                while self._waiting and (not group or size + len(self._waiting[0].lines) <= SEGMENT_BYTES):
                    group.append(self._waiting.pop(0))
                    size += len(group[-1].lines)
                self._bytes -= size
            try:
                self._write(group)
            except BaseException as error:
                self._tail = None  # what is in the log is read again
                for waiting in group:
                    if not waiting.answer.done():
                        waiting.answer.set_exception(_failed(error))

    def _write(self, group: list[_Waiting]) -> None:
        """Have a group in the log, each append of it once, and answer."""
        while True:
            tail = self._tail = self._tail or Tail(self._log)
            fresh = self._answer_known(group, tail)
            if fresh is None:
                return
            fail_point("append:before")
            body = b"".join(waiting.lines for waiting in fresh)
            header = Header(
                log=self.identity,
                number=tail.number,
                first=tail.end,
                previous=tail.previous,
                appends=[waiting.append for waiting in fresh],
                records=sum(waiting.append.records for waiting in fresh),
                bytes=len(body),
                crc=crc32(body),
                created_ms=round(time.time() * 1000),
            )
            data, (_, crc) = encode_segment(header, body)
            try:
                self._log.create(segment_name(header.number), data)
            except AlreadyExistsError:
                tail.catch_up()
                continue
            if tail.is_stray(header.number):
                raise SourceError("the log has gone on meanwhile", hint="send it again, with the same id")
            fail_point("append:written")
            for waiting in fresh:
                waiting.made = True
            tail.add(header, crc)
            self._durable = tail.number

    def _answer_known(self, group: list[_Waiting], tail: Tail) -> list[_Waiting] | None:
        """Answer what is in the log. The rest is to be written now; None: there is none.

        That a segment is in its folder for good is known only after another one was created there, if somebody else has created
        it: until then what it holds is not answered, and an empty segment is written if need be."""
        fresh: dict[str, _Waiting] = {}
        unsure = False
        for waiting in group:
            if waiting.answer.done():
                continue
            append = waiting.append
            known = tail.known.get(append.id)
            if known is None:
                first = fresh.setdefault(append.id, waiting)
                if first is not waiting and first.append != append:
                    waiting.answer.set_exception(_other_records(append.id))
            elif (known.records, known.crc) != (append.records, append.crc):
                waiting.answer.set_exception(_other_records(append.id))
            elif known.segment < self._durable:
                made = Appended(source=self.source, end=known.end, records=known.records, repeated=not waiting.made)
                waiting.answer.set_result(made)
            else:
                unsure = True
        return list(fresh.values()) if fresh or unsure else None


def _other_records(id: str) -> RefusedAppendError:
    return RefusedAppendError(f"the id {id!r:.100} was used for other records", hint="give each append an id of its own")


def _failed(error: BaseException) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    return SourceError(f"the records could not be appended: {type(error).__name__}: {error}")
