"""Stored entries are rewritten for the program that starts now: before its take-over epoch, which makes them visible.

Laws:
- Each new partition gets one more file, a delta of all entries of the states that migrate. Its name carries the term: left by a
  crash, it is an orphan. Until the manifest nothing has changed; an error of a `migrate=` function leaves the job as it was.
- Streaming: a few blocks of each file are in memory.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain as chained

import msgspec

from penstock.compile.compatibility import Rewriting
from penstock.compile.layout import Claims
from penstock.diagnosis.tracebacks import innermost
from penstock.errors import PenstockError, StateError, UserCodeError
from penstock.failpoints import fail_point
from penstock.functions import function_location
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK, Epoch, JobId, Milliseconds, Term
from penstock.jobs import paths
from penstock.jobs.manifest import StateLayout
from penstock.state.encoding.evolution import needs_trust
from penstock.state.encoding.keys import key_codec
from penstock.state.encoding.stored_values import STAMP_SIZE
from penstock.state.entries.kinds import StateKind, kind_of
from penstock.state.entries.rewriting import EntryRewriter, ValueRewriter
from penstock.state.entries.store_keys import HEAD_SIZE, group_of_store_key, state_id_of_store_key, timer_key
from penstock.state.files.durable import FileIdentity, FileRef, write_merged_delta
from penstock.state.files.merging import read_live
from penstock.state.key_groups import ANY_GROUP
from penstock.state.overlay.handles import state_codec
from penstock.storage import Storage

log = logging.getLogger("penstock")

Entry = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What the clocks of times to live show at the start."""

    processing_time: Milliseconds
    watermarks: dict[str, Milliseconds]

    def now(self, step: str, clock: str) -> Milliseconds:
        return self.watermarks.get(step, MIN_WATERMARK) if clock == "event" else self.processing_time


class StateRewriter:
    """Rewrites the entries of one state, and sets the timers that remove them when their time to live is new."""

    def __init__(self, rewriting: Rewriting, ids: dict[tuple[str, str], int], times: Times) -> None:
        declaration, stored = rewriting.declaration, rewriting.stored
        assert declaration.state is not None
        state = self._state = declaration.state
        self._declaration = declaration
        self._rewriting = rewriting
        self._kind: StateKind = kind_of(stored)
        self._keys = key_codec(declaration.key_type)
        codec = state_codec(state)
        self._values = ValueRewriter(
            codec=codec,
            schema=codec.schema,
            aliases=state.aliases,
            migrate=state.migrate if rewriting.by_function else None,
            pickled=needs_trust(stored.schema),
        )
        clock = stored.ttl_time or (state.ttl.time if state.ttl is not None else "processing")
        anew = state.ttl is not None and (not stored.ttl or (stored.ttl_time or clock) != state.ttl.time)
        expires = MAX_WATERMARK
        if state.ttl is not None and anew:
            now = times.now(declaration.step, state.ttl.time)
            expires = MAX_WATERMARK if now == MIN_WATERMARK else min(now + state.ttl.ms, MAX_WATERMARK)
        self._entries = EntryRewriter(
            kind=self._kind,
            values=self._values,
            now=times.now(declaration.step, clock) if stored.ttl else None,
            stamped=state.ttl is not None,
            expires=expires,
            anew=anew,
        )
        self.timer_id: int | None = None
        self.due: Milliseconds = MAX_WATERMARK
        if state.ttl is not None and anew and expires < MAX_WATERMARK:
            granule = max(1, state.ttl.ms // 10)
            self.due = -(-expires // granule) * granule
            queues = [f"timers:ttl-{state.ttl.time}", *([] if declaration.namespace else [f"timers:key-ttl-{state.ttl.time}"])]
            self.timer_id = [ids[declaration.step, name] for name in queues if (declaration.step, name) in ids][-1]

    def rewritten(self, key: bytes, data: bytes) -> bytes | None:
        try:
            return self._entries(data)
        except Exception as error:
            raise self._error(error, key, data) from error

    def timer(self, key: bytes) -> bytes:
        """The timer that removes what has expired of an entry's key."""
        assert self.timer_id is not None
        (space,) = self._kind.split([key[HEAD_SIZE:]], self._declaration.namespace).spaces
        return timer_key(group_of_store_key(key), self.timer_id, self.due, space)

    def _error(self, error: Exception, key: bytes, data: bytes) -> PenstockError:
        declaration, function = self._declaration, self._state.migrate
        where = f"state {declaration.name!r} of step {declaration.step!r}"
        try:
            shown = repr(self._keys.decode(self._kind.place(key[HEAD_SIZE:], declaration.namespace).key))
        except PenstockError:
            shown = repr(key)
        detail = f"key: {shown:.200}\nstored value: {self._plain(data)}\n"
        if not self._rewriting.by_function or function is None:
            return StateError(
                f"a stored value of {where} cannot be rewritten: {type(error).__name__}: {error}",
                detail=detail.rstrip(),
                hint="the job is unchanged; give the state migrate=, which makes a value of the new type of each stored one",
            )
        place = innermost(error)
        said, more = (error.what, f"{error.detail}\n") if isinstance(error, PenstockError) else (str(error), "")
        return UserCodeError(
            f"migrate= of {where}: {type(error).__name__}: {said}",
            detail=f"{detail}{more}function: {function_location(function)}" + (f"\nraised at: {place}" if place else ""),
            hint="the job is unchanged; fix the function: it gets every stored value and returns one of the declared type",
        )

    def _plain(self, data: bytes) -> str:
        try:
            skip = STAMP_SIZE if self._rewriting.stored.ttl else 0
            return f"{', '.join(repr(self._values.plain(item[skip:])) for item in self._kind.items(data)):.300}"
        except Exception:
            return f"{data!r:.300}"


def migrate_states(
    storage: Storage,
    layout: StateLayout,
    claims: Claims,
    times: Times,
    *,
    job: JobId,
    term: Term,
    epoch: Epoch,
) -> StateLayout:
    """The layout with every entry of the migrating states rewritten."""
    if not claims.rewritings:
        return layout
    rewriters = {number: StateRewriter(rewriting, claims.ids, times) for number, rewriting in claims.rewritings.items()}
    chains = [[list(chain) for chain in stage] for stage in layout.chains]
    due = [[dict(one) for one in stage] for stage in layout.next_due]
    count = 0
    for stage, numbers in enumerate(layout.stages):
        mine = {number: rewriters[number] for number in numbers if number in rewriters}
        for partition, chain in enumerate(chains[stage] if mine else []):
            attempt = f"{term}-m{stage}-{partition}"
            identity = FileIdentity(job, epoch, str(stage), partition, attempt)
            entries = rewritten_entries(storage, chain, mine)
            first = next(entries, None)
            if first is None:
                continue
            name = paths.state_file(stage, partition, epoch, attempt, "delta")
            ref = write_merged_delta(storage, name, chained([first], entries), identity)
            count += ref.entries
            chain.append(ref)
            for one in mine.values():
                if one.timer_id is not None:
                    due[stage][partition][one.timer_id] = min(one.due, due[stage][partition].get(one.timer_id, one.due))
    fail_point("migrate:written")
    log.info("state rewritten for the new program: %d entries of %d states", count, len(rewriters))
    return msgspec.structs.replace(layout, chains=chains, next_due=due)


def rewritten_entries(storage: Storage, chain: list[FileRef], rewriters: dict[int, StateRewriter]) -> Iterator[Entry]:
    """The entries of migrating states as they are to be, and new timers, in order."""

    def stored(numbers: Collection[int]) -> Iterator[tuple[bytes, bytes]]:
        for keys, values in read_live(storage, chain, ANY_GROUP, numbers.__contains__):
            yield from zip(keys, values, strict=True)

    def timers(number: int, one: StateRewriter) -> Iterator[Entry]:
        return ((one.timer(key), b"") for key, _ in stored([number]))

    entries: Iterator[Entry] = (
        (key, rewriters[state_id_of_store_key(key)].rewritten(key, data)) for key, data in stored(rewriters)
    )
    new_timers = [timers(number, one) for number, one in rewriters.items() if one.timer_id is not None]
    before = b""
    for key, data in heapq.merge(entries, *new_timers) if new_timers else entries:
        if key != before:  # several entries of a key have one timer
            yield key, data
        before = key
