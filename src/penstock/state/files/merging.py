"""The newest entry of every key, from files (a chain) that each are sorted: list by list, not entry by entry.

Laws:
- Of runs that have the same key the last one counts.
- Keys come out strictly ascending. A block of each run is in memory, and no more.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from penstock.state.entries.store_keys import HEAD_SIZE, group_of_store_key, prefix_end, state_id_of_store_key
from penstock.state.files.durable import Block, FileRef, read_entries
from penstock.storage.protocol import Storage

StateEntries = Iterator[tuple[int, int, list[bytes], list[bytes]]]
"""(key group, state id, raw keys, raw values), in order."""


def read_chain(
    storage: Storage, chain: Sequence[FileRef], groups: range, keep: Callable[[int], bool] | None = None
) -> Iterator[Block]:
    """The newest entries of a chain, deletions included: of some groups, and of the states that `keep` wants."""
    return newest([read_entries(storage, ref, groups=groups, keep=keep) for ref in chain])


def read_live(
    storage: Storage, chain: Sequence[FileRef], groups: range, keep: Callable[[int], bool] | None = None
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """What a chain holds: the newest entries, without deletions."""
    return live(read_chain(storage, chain, groups, keep))


def read_states(storage: Storage, chain: Sequence[FileRef], groups: range, keep: Callable[[int], bool]) -> StateEntries:
    """What a chain holds, by key group and state."""
    for keys, values in read_live(storage, chain, groups, keep):
        for head, mine in stretches(keys, HEAD_SIZE):
            yield group_of_store_key(head), state_id_of_store_key(head), [key[HEAD_SIZE:] for key in keys[mine]], values[mine]


def stretches(keys: list[bytes], size: int) -> Iterator[tuple[bytes, slice]]:
    """Sorted keys, cut where their first bytes change: these bytes, and where the keys are."""
    start = 0
    while start < len(keys):
        head = keys[start][:size]
        end = prefix_end(head)
        stop = len(keys) if end is None or keys[-1] < end else bisect_left(keys, end, start)
        yield head, slice(start, stop)
        start = stop


def newest(runs: Sequence[Iterable[Block]]) -> Iterator[Block]:
    """Every key once with its newest value, deletions (None) included; `runs` are from the oldest to the newest."""
    open_runs = [run for run in map(_Run, runs) if run.keys]
    while len(open_runs) > 1:
        upto = min(run.keys[-1] for run in open_runs)
        parts = [part for run in open_runs if (part := run.take(upto))[0]]
        yield _merged(parts) if len(parts) > 1 else parts[0]
        open_runs = [run for run in open_runs if run.keys]
    for run in open_runs:
        yield from run.rest()


def live(blocks: Iterable[Block]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Without deletions."""
    for keys, values in blocks:
        if None in values:
            kept = [(key, value) for key, value in zip(keys, values, strict=True) if value is not None]
            if kept:
                yield [key for key, _ in kept], [value for _, value in kept]
        else:
            yield keys, values  # type: ignore[misc]


def _merged(parts: list[Block]) -> Block:
    entries: dict[bytes, bytes | None] = {}
    for part_keys, part_values in parts:
        entries.update(zip(part_keys, part_values, strict=True))
    keys = sorted(entries)
    return keys, list(map(entries.__getitem__, keys))


class _Run:
    """What is left of a sorted sequence of blocks; `keys` is empty at its end."""

    __slots__ = ("_blocks", "keys", "values")

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks = iter(blocks)
        self.keys: list[bytes] = []
        self.values: list[bytes | None] = []
        self._advance()

    def take(self, upto: bytes) -> Block:
        """The entries of the current block up to a key."""
        if self.keys[-1] <= upto:
            taken = self.keys, self.values
            self._advance()
            return taken
        cut = bisect_right(self.keys, upto)
        taken = self.keys[:cut], self.values[:cut]
        del self.keys[:cut]
        del self.values[:cut]
        return taken

    def rest(self) -> Iterator[Block]:
        while self.keys:
            yield self.keys, self.values
            self._advance()

    def _advance(self) -> None:
        self.keys, self.values = [], []
        for keys, values in self._blocks:
            if keys:
                self.keys, self.values = keys, values
                return
