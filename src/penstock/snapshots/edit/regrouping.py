"""A savepoint with another number of key groups, and by the newest key hash.

Laws:
- Every entry is there again, in the group that its key has now. Values stay byte for byte.
- A chunk of windows over columns is cut by the new groups. Chunks of one time and level that meet in a new group hold different
  keys: they become one, unless their vectors are of different types; then the second takes a free level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import groupby

import msgspec
import numpy as np

from penstock.jobs.manifest import StateInfo
from penstock.snapshots.edit.editing import parent_of
from penstock.snapshots.edit.sorting import Sorter, as_entries, write_entries
from penstock.snapshots.savepoint.format import SavepointInfo, SavepointWriter
from penstock.snapshots.tabular.kinds import CHUNKED, keyed_layout
from penstock.snapshots.view.content import Content, Entries, open_content
from penstock.state.files.durable import Block
from penstock.state.files.merging import live
from penstock.state.key_groups import NEW_JOBS, KeyGroups, check_parallelism
from penstock.storage import open_storage
from penstock.windows.columnar.chunks import StoredChunk, read_stored, write_stored

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


def regroup(uri: str, max_parallelism: int | None, to: str, *, told: Callable[[str, str], None] | None = None) -> SavepointInfo:
    """Write a snapshot again with `max_parallelism` key groups (None: as many as it has), as a savepoint in an empty folder.

    Keys are grouped by the key hash of new jobs, whatever they were grouped by. `told` is called with step and name of each state
    when its turn comes.
    """
    if max_parallelism is not None:
        check_parallelism(1, max_parallelism)
    with ExitStack() as held:
        content = open_content(str(uri), held, "regrouping")
        info = content.info
        groups = KeyGroups(max_parallelism or info.max_parallelism, NEW_JOBS)
        with SavepointWriter(open_storage(to), key_groups=groups) as savepoint:
            for saved in info.states:
                if told is not None:
                    told(saved.info.step, saved.info.name)
                with Sorter() as sorter:
                    writer = savepoint.state(saved.info, number=saved.number, next_due=saved.next_due)
                    write_entries(writer, regrouped(content, saved.number, saved.info, groups, sorter))
            return savepoint.finish(
                job=info.job,
                epoch=info.epoch,
                program=info.program,
                config={**info.config, "max_parallelism": groups.count},
                parent=parent_of(content),
                processing_time=info.processing_time,
                finished=info.finished,
                drained=info.drained,
                sources=info.sources,
                watermarks=info.watermarks,
            )


def regrouped(content: Content, number: int, info: StateInfo, key_groups: KeyGroups, sorter: Sorter) -> Entries:
    """The entries of a state by the groups that their keys have among these."""
    if key_groups == content.info.key_groups:
        return content.entries(number)
    if info.kind in CHUNKED:
        for group, keys, values in content.entries(number):
            sorter.add(_cut(group, keys, values, info, key_groups))
        return as_entries(_joined(sorter.blocks(), info))
    layout = keyed_layout(info)
    for _, raw_keys, raw_values in content.entries(number):
        groups = key_groups.of_many(layout.keys(raw_keys))
        sorter.add(zip(groups.tolist(), raw_keys, raw_values, strict=True))
    return as_entries(sorter.blocks())


# --- chunks -------------------------------------------------------------------------------------------------------------------


def _cut(
    group: int, raw_keys: list[bytes], raw_values: list[bytes], info: StateInfo, key_groups: KeyGroups
) -> Iterator[tuple[int, bytes, bytes]]:
    """Chunks, cut by new group; their keys go on with the types of vectors and the old group, so that none replaces another."""
    for raw, value in zip(raw_keys, raw_values, strict=True):
        chunk = read_stored(value, f"step {info.step!r}")
        groups = key_groups.of_many(chunk.keys)
        types = "".join(kind[0] for vectors in chunk.vectors for kind, _ in vectors).encode()
        for new in np.unique(groups).tolist():
            rows = np.flatnonzero(groups == new)
            yield new, raw + types + group.to_bytes(2, "big"), write_stored(taken(chunk, rows))


def taken(chunk: StoredChunk, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> StoredChunk:
    """Some rows of a chunk."""

    def some(kind: str, data: bytes) -> tuple[str, bytes]:
        if kind == "any":
            blobs = _unpack(data)
            return kind, _pack([blobs[row] for row in rows.tolist()])
        return kind, np.frombuffer(data, "<i8")[rows].tobytes()

    vectors = [[some(*vector) for vector in vectors] for vectors in chunk.vectors]
    return msgspec.structs.replace(chunk, keys=[chunk.keys[row] for row in rows.tolist()], vectors=vectors)


def _together(chunks: list[StoredChunk]) -> StoredChunk:
    """The rows of all; their vectors are of the same types."""

    def both(parts: tuple[tuple[str, bytes], ...]) -> tuple[str, bytes]:
        kind = parts[0][0]
        if kind == "any":
            return kind, _pack([blob for _, data in parts for blob in _unpack(data)])
        return kind, b"".join(data for _, data in parts)

    if len(chunks) == 1:
        return chunks[0]
    columns = zip(*(chunk.vectors for chunk in chunks), strict=True)
    vectors = [[both(parts) for parts in zip(*measures, strict=True)] for measures in columns]
    return msgspec.structs.replace(chunks[0], keys=[key for chunk in chunks for key in chunk.keys], vectors=vectors)


def _joined(blocks: Iterator[Block], info: StateInfo) -> Iterator[Block]:
    """Chunks of a group and time (10 bytes of the key), each on a level of its own."""
    entries = ((key, value) for keys, values in live(blocks) for key, value in zip(keys, values, strict=True))
    for place, mine in groupby(entries, key=lambda entry: entry[0][:10]):
        met: dict[tuple[int, bytes], list[StoredChunk]] = {}
        for key, value in mine:
            met.setdefault((key[10], key[11:-2]), []).append(read_stored(value, f"step {info.step!r}"))
        free = _free_levels({level for level, _ in met})
        done: dict[int, StoredChunk] = {}
        for (level, _), chunks in met.items():
            done[level if level not in done else next(free)] = _together(chunks)
        levels = sorted(done)
        yield [place + bytes((level,)) for level in levels], [write_stored(done[level]) for level in levels]


def _free_levels(taken: set[int]) -> Iterator[int]:
    return (level for level in range(256) if level not in taken)
