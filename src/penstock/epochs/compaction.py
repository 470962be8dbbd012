"""Compaction: merges durable files so that chains stay short. It never touches a local store.

Decide purely: `choose` looks at a chain and says which files to merge. A run of deltas becomes one delta; once the deltas
weigh as much as half of the base, everything becomes a new base. So the write amplification stays bounded however large the
state. Files of a savepoint that the job started from, and several bases after rescaling, become one base the first time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from penstock import paths
from penstock.failpoints import fail_point
from penstock.ids import Epoch, JobId
from penstock.state.files import FileIdentity, FileRef, read_entries, write_base, write_merged_delta
from penstock.state.key_groups import groups_of
from penstock.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Files `chain[start:stop]` are to become one."""

    start: int
    stop: int
    base: bool


def choose(chain: list[FileRef], compact_after: int) -> Merge | None:
    """What to merge of a chain, if anything. Pure."""
    if len(chain) <= compact_after:
        return None
    bases = [number for number, ref in enumerate(chain) if ref.kind == "base"]
    first_delta = bases[-1] + 1 if bases else 0
    base_size = sum(map(read_size, chain[:first_delta]))
    delta_size = sum(map(read_size, chain[first_delta:]))
    of_savepoint = any(ref.state is not None for ref in chain)
    if not bases or of_savepoint or len(bases) > 1 or delta_size * 2 >= base_size:
        return Merge(start=0, stop=len(chain), base=True)
    # Merge the newest run of deltas that are of about one size: like a log-structured tree, tier by tier.
    start = len(chain) - 1
    weight = chain[start].size
    while start > first_delta and chain[start - 1].size <= 4 * max(weight, 4096):
        start -= 1
        weight += chain[start].size
    if len(chain) - start < 2:
        start = first_delta
    return Merge(start=start, stop=len(chain), base=False)


def read_size(ref: FileRef) -> int:
    """About how many bytes of a file are read for a partition: after rescaling, and of a savepoint, it is a part of them."""
    groups = ref.last_group + 1 - ref.first_group
    read = min(ref.hi, ref.last_group + 1) - max(ref.lo, ref.first_group)
    return ref.size if read >= groups else ref.size * max(0, read) // max(1, groups)  # one without entries has no groups


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTask:
    """A merge with everything it needs."""

    job: JobId
    stage: int
    partition: int
    parallelism: int
    max_parallelism: int
    state_ids: tuple[int, ...]
    files: tuple[FileRef, ...]
    base: bool
    epoch: Epoch
    attempt: str


def merge(storage: Storage, task: MergeTask) -> FileRef:
    """Carry a merge out, streaming: nothing but a few blocks of each file is in memory."""
    name = paths.state_file(task.stage, task.partition, task.epoch, task.attempt, "base" if task.base else "delta")
    identity = FileIdentity(task.job, task.epoch, str(task.stage), task.partition, task.attempt)
    entries = _newest(storage, task)
    covers = task.files[-1].mark
    fail_point("compaction:write")
    if task.base:
        live = ((key, value) for key, value in entries if value is not None)
        return write_base(storage, name, live, identity, covers=covers)
    return write_merged_delta(storage, name, entries, identity, covers=covers)


def _newest(storage: Storage, task: MergeTask) -> Iterator[tuple[bytes, bytes | None]]:
    """Every key once, in order, with its newest value."""
    groups = groups_of(task.partition, task.parallelism, task.max_parallelism)
    ids = frozenset(task.state_ids)
    runs = [_entries(storage, ref, groups, ids, -number) for number, ref in enumerate(task.files)]
    for key, versions in groupby(heapq.merge(*runs), key=itemgetter(0)):
        _, _, value = next(versions)
        yield key, value


def _entries(
    storage: Storage, ref: FileRef, groups: range, ids: frozenset[int], age: int
) -> Iterator[tuple[bytes, int, bytes | None]]:
    wanted = range(max(groups.start, ref.lo), min(groups.stop, ref.hi))
    for keys, values in read_entries(storage, ref, groups=wanted, keep=ids.__contains__):
        for key, value in zip(keys, values, strict=True):
            yield key, age, value
