"""Compaction: merges durable files so that chains stay short and storage bounded. It never touches a local store.

Decide purely: `choose` looks at a chain and says which files to merge.

Laws:
- Once the deltas weigh 0.65 of the base, everything becomes a new base. So a chain weighs at most about 1.65 of its base, and
  less than three times with the old chain, which stays as long as kept epochs name it. A byte of a delta costs 1.5 of bases.
- Before that, deltas of about one size become one delta whenever there are more than `compact_after` of them: the chain's length
  follows the logarithm of their number, and a byte is rewritten once for each such tier.
- However much the epochs change, a new base is not made for each: there are half of `compact_after` deltas first.
- Files of a savepoint that the job started from, and several bases after rescaling, become one base the first time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, starmap

from penstock.failpoints import fail_point
from penstock.ids import Epoch, JobId
from penstock.jobs import paths
from penstock.state.files.durable import FileIdentity, FileRef, write_base, write_merged_delta
from penstock.state.files.merging import live, read_chain
from penstock.state.key_groups import ANY_GROUP
from penstock.storage import Storage

NEW_BASE_AT = 0.65
"""Deltas of this part of the base's weight make a new base due."""

BASE_IS_NEAR = 0.7
"""From this part of that on, deltas are left for the base that is coming."""

SMALL = 64 * 1024
"""Changes that weigh less are merged for the number of files only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merge:
    """Files `start` to `stop` of a chain are to become one."""

    start: int
    stop: int
    base: bool


def choose(files: list[FileRef], compact_after: int) -> Merge | None:
    """What to merge of a chain of files, if anything. Pure."""
    if len(files) < 2:
        return None
    weights = [read_size(ref) for ref in files]
    one_base = sum(ref.kind == "base" for ref in files) == 1 and all(ref.state is None for ref in files)
    first = max((number for number, ref in enumerate(files, 1) if ref.kind == "base"), default=0)
    kept = sum(weights[:first]) or max(weights)
    changed = sum(weights) - kept
    many = len(files) > compact_after
    enough = changed > SMALL and 2 * len(files) > compact_after
    if (many and not one_base) or (changed >= NEW_BASE_AT * kept and (many or enough)):
        return Merge(start=0, stop=len(files), base=True)
    near = changed >= BASE_IS_NEAR * NEW_BASE_AT * kept
    return _tier(weights, first, compact_after, 3 * compact_after if near else compact_after)


def _tier(weights: list[int], first: int, fan_in: int, most: int) -> Merge | None:
    """The newest run of deltas of about one size that are more than `most`."""
    stop = len(weights)
    while stop > first:
        start, weight = stop - 1, weights[stop - 1]
        while start > first and weights[start - 1] <= max(2, fan_in / 2) * max(weight / (stop - start), 1024):
            start -= 1
            weight += weights[start]
        if stop - start > most:
            return Merge(start=start, stop=stop, base=False)
        stop = start
    return None


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
    entries = read_chain(storage, task.files, ANY_GROUP, frozenset(task.state_ids).__contains__)
    covers = task.files[-1].mark
    fail_point("compaction:write")
    if task.base:
        return write_base(storage, name, chain.from_iterable(starmap(zip, live(entries))), identity, covers=covers)
    return write_merged_delta(storage, name, chain.from_iterable(starmap(zip, entries)), identity, covers=covers)
