"""Two snapshots, compared state by state: what was added, removed, changed.

Laws:
- What counts is what a state holds for a key, not how it came there: a list is compared as a whole, windows over columns by their
  rows (`StateKind.contents`), in whatever epochs they were written; and so are snapshots with different numbers of key groups.
- Streaming: a few blocks of each side are in memory. (Of windows over columns, a key group.)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import pyarrow as pa

from penstock.ids import MIN_WATERMARK
from penstock.snapshots.edit.regrouping import regrouped
from penstock.snapshots.edit.sorting import Sorter, as_blocks
from penstock.snapshots.savepoint.format import SavedState
from penstock.snapshots.view.content import Content, open_content
from penstock.snapshots.view.lookup import readable
from penstock.state.entries.entry_columns import GroupedEntries
from penstock.state.entries.kinds import StateKind, kind_of
from penstock.state.entries.state_table import StateTable
from penstock.state.files.durable import Block
from penstock.state.key_groups import KeyGroups

_unpack = msgspec.msgpack.Decoder().decode


@dataclass(frozen=True, slots=True)
class Change:
    """One difference: an entry, without its value; what it was, and what it is."""

    what: Literal["added", "removed", "changed"]
    entry: dict[str, Any]
    before: Any = None
    after: Any = None


@dataclass(slots=True)
class StateDiff:
    """How a state differs. `only`: it is in one of the snapshots only; `note`: what else is to be said."""

    step: str
    name: str
    kind: str
    added: int = 0
    removed: int = 0
    changed: int = 0
    unchanged: int = 0
    only: Literal["", "A", "B"] = ""
    note: str = ""
    examples: list[Change] = field(default_factory=list)

    @property
    def same(self) -> bool:
        return not (self.added or self.removed or self.changed or self.note) and not self.only


@dataclass(slots=True)
class SnapshotDiff:
    """How two snapshots differ: their states; sources and watermarks as (before, after)."""

    a: str
    b: str
    states: list[StateDiff] = field(default_factory=list)
    sources: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    watermarks: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def same(self) -> bool:
        """The states are the same (the sources may have read on)."""
        return all(state.same for state in self.states)


def diff(a: str, b: str, *, examples: int = 3) -> SnapshotDiff:
    """Compare two snapshots: savepoints, jobs (their newest epochs), epochs as JOB@EPOCH, in any mix."""
    with ExitStack() as held:
        first, second = (open_content(str(uri), held, "comparing") for uri in (a, b))
        found = SnapshotDiff(first.source, second.source)
        for key, (one, other) in _both(_by_name(first), _by_name(second)).items():
            found.states.append(_compare(first, second, one, other, key, examples))
        positions = _both(*({s: state.position for s, state in c.info.sources.items()} for c in (first, second)))
        found.sources = {step: pair for step, pair in positions.items() if pair[0] != pair[1]}
        times = _both(first.info.watermarks, second.info.watermarks)
        found.watermarks = {step: pair for step, pair in times.items() if pair[0] != pair[1]}
        return found


def _by_name(content: Content) -> dict[tuple[str, str], SavedState]:
    return {(state.info.step, state.info.name): state for state in content.info.states}


def _both(left: dict[Any, Any], right: dict[Any, Any]) -> dict[Any, tuple[Any, Any]]:
    return {key: (left.get(key), right.get(key)) for key in sorted(left.keys() | right.keys())}


def _compare(
    a: Content, b: Content, one: SavedState | None, other: SavedState | None, key: tuple[str, str], examples: int
) -> StateDiff:
    known = one or other
    assert known is not None
    result = StateDiff(*key, known.info.kind)
    if one is not None and other is not None and one.info.kind != other.info.kind:
        result.note = f"was a {one.info.kind} state and is a {other.info.kind} state"
        return result
    if one is not None and other is not None and one.info.schema != other.info.schema:
        result.note = "its type has changed"
    groups = a.info.key_groups
    with ExitStack() as held:
        kind, left = (None, iter(())) if one is None else _logical(a, one, groups, held)
        kind, right = (kind, iter(())) if other is None else _logical(b, other, groups, held)
        assert kind is not None
        pairs = _Pairs(result, examples, _Shower(a, one, kind), _Shower(b, other, kind))
        for before, after in _aligned(as_blocks(left), as_blocks(right)):
            pairs.take(before, after)
    if one is None or other is None:
        result.only = "B" if one is None else "A"
    return result


# --- what a state holds --------------------------------------------------------------------------------------------------------


def _logical(content: Content, saved: SavedState, key_groups: KeyGroups, held: ExitStack) -> tuple[StateKind, GroupedEntries]:
    """What a state holds, by these key groups."""
    info = saved.info
    watermark = content.info.watermarks.get(info.step, MIN_WATERMARK)
    kind, entries = kind_of(info).contents(content.entries(saved.number), info, watermark)
    return kind, regrouped(entries, kind, info, content.info.key_groups, key_groups, held.enter_context(Sorter()))


# --- side by side --------------------------------------------------------------------------------------------------------------


def _aligned(left: Iterator[Block], right: Iterator[Block]) -> Iterator[tuple[Block, Block]]:
    """Pieces of both that hold the same stretch of keys."""
    a, b = _next(left), _next(right)
    while a[0] or b[0]:
        if not a[0] or not b[0]:
            yield a, b
            a, b = (_next(left), b) if a[0] else (a, _next(right))
            continue
        upto = min(a[0][-1], b[0][-1])
        (mine, a), (yours, b) = _cut(a, upto), _cut(b, upto)
        yield mine, yours
        a, b = a if a[0] else _next(left), b if b[0] else _next(right)


def _next(blocks: Iterator[Block]) -> Block:
    return next((block for block in blocks if block[0]), ([], []))


def _cut(block: Block, upto: bytes) -> tuple[Block, Block]:
    at = bisect_right(block[0], upto)
    return (block[0][:at], block[1][:at]), (block[0][at:], block[1][at:])


class _Pairs:
    """Counts differences, and keeps some as examples."""

    def __init__(self, result: StateDiff, examples: int, before: _Shower, after: _Shower) -> None:
        self._result = result
        self._left = {"added": examples, "removed": examples, "changed": examples}
        self._before = before
        self._after = after

    def take(self, before: Block, after: Block) -> None:
        result = self._result
        if before == after:
            result.unchanged += len(before[0])
            return
        old, new = dict(zip(*before, strict=True)), dict(zip(*after, strict=True))
        for key, value in old.items():
            if key not in new:
                result.removed += 1
                self._show("removed", key, value, None)
            elif new[key] == value:
                result.unchanged += 1
            else:
                result.changed += 1
                self._show("changed", key, value, new[key])
        for key, value in new.items():
            if key not in old:
                result.added += 1
                self._show("added", key, None, value)

    def _show(self, what: Literal["added", "removed", "changed"], key: bytes, old: bytes | None, new: bytes | None) -> None:
        if not self._left[what]:
            return
        self._left[what] -= 1
        entry, before = self._before.show(key[2:], old) if old is not None else ({}, None)
        entry, after = self._after.show(key[2:], new) if new is not None else (entry, None)
        self._result.examples.append(Change(what, entry, before, after))


class _Shower:
    """Entries for people: (what it is of, its value)."""

    def __init__(self, content: Content, saved: SavedState | None, kind: StateKind) -> None:
        self._content = content
        self._saved = saved
        self._kind = kind
        self._columns: StateTable | None = None

    def show(self, raw_key: bytes, raw_value: bytes) -> tuple[dict[str, Any], Any]:
        assert self._saved is not None
        if self._kind.in_plain_text:
            return self._kind.shown(raw_key, raw_value)
        if self._columns is None:
            self._columns = self._content.columns(self._saved.number)
        (row,) = readable(pa.Table.from_arrays(self._columns.read([raw_key], [raw_value]), schema=self._columns.schema))
        value = row.pop("value", row.pop("aggregates", None))
        row.pop("chunk", None)
        return row, value
