"""What committed epochs changed, from one that a subscriber has seen to the newest: from the files that they added.

    steps_since(seen, line)    which epochs lie between, oldest first; or that this cannot be told (`Missed`), or that the job
                               went back behind it (`Reset`)
    new_files(before, now)     the files with the changes of one of these steps

Laws:
- The changes of the steps, applied in order to what was seen, are the newest state: none is left out, none comes twice.
- What was compacted before it was looked at is not guessed: it is missed, and said to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from penstock.ids import Epoch
from penstock.jobs.manifest import Manifest
from penstock.query.deltas import DeltaCache
from penstock.query.reading import Entry
from penstock.state.entries.store_keys import HEAD_SIZE
from penstock.state.files.durable import FileRef

Change = tuple[bytes, bytes | None]
"""A raw key, and its value now; None: there is none any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One committed epoch after another."""

    before: Manifest
    now: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """What happened between cannot be told any more."""

    after: Epoch
    now: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The job went back to epoch `to`, which is before what was seen; or was started from another snapshot."""

    after: Epoch
    to: Epoch
    now: Manifest


def steps_since(seen: Manifest, line: Iterable[Manifest]) -> list[Step] | Missed | Reset:
    """`line`: the kept epochs that led to the newest, newest first. Pure."""
    newer: list[Manifest] = []
    for manifest in line:
        if manifest.epoch <= seen.epoch:
            break
        newer.append(manifest)
        if manifest.back is not None and manifest.back.to < seen.epoch:
            return Reset(after=seen.epoch, to=manifest.back.to, now=newer[0])
        if manifest.restored != seen.restored and manifest.restored is not None and manifest.restored.at == manifest.epoch:
            return Reset(after=seen.epoch, to=manifest.restored.epoch, now=newer[0])
    if not newer:
        return []
    newer.reverse()
    if newer[0].parent != seen.epoch and newer[0].term != seen.term:
        return Missed(after=seen.epoch, now=newer[-1])
    steps = [Step(before=before, now=now) for before, now in zip([seen, *newer], newer, strict=False)]
    if any(new_files(step.before, step.now) is None for step in steps):
        return Missed(after=seen.epoch, now=newer[-1])
    return steps


def new_files(before: Manifest, now: Manifest) -> list[tuple[int, FileRef]] | None:
    """The files that an epoch added, with their stages, in the order of their partitions; None if they are not to be had."""
    known = {name for _, ref in _files(before) for name in (ref.name, ref.mark, ref.covers) if name is not None}
    found: list[tuple[int, FileRef]] = []
    for stage, ref in _files(now):
        if ref.name in known:
            continue
        if ref.covers is None:
            if ref.kind != "delta":
                return None
            found.append((stage, ref))
        elif ref.covers not in known:
            return None
    return found


def _files(manifest: Manifest) -> Iterator[tuple[int, FileRef]]:
    for stage, partitions in enumerate(manifest.state.chains):
        for chain in partitions:
            for ref in chain:
                yield stage, ref


def changes_of(cache: DeltaCache, step: Step, number: int, prefix: bytes = b"") -> list[Change]:
    """What an epoch changed of a state: of raw keys that begin so. What changed twice counts as it was last."""
    layout = step.now.state
    stages = {stage for stage, numbers in enumerate(layout.stages) if number in numbers}
    wanted = number.to_bytes(2, "big")
    found: dict[bytes, bytes | None] = {}
    for stage, ref in new_files(step.before, step.now) or ():
        if stage in stages:
            entries = cache.read(ref, frozenset(layout.stages[stage]).__contains__)
            changed = entries.values.items()
            found.update(
                {key: value for key, value in changed if key[2:HEAD_SIZE] == wanted and key.startswith(prefix, HEAD_SIZE)}
            )
    return [(key[HEAD_SIZE:], found[key]) for key in sorted(found)]


def applied(entries: Iterable[Entry], changes: Iterable[Change]) -> list[Entry]:
    """Entries after some changes: what a subscriber has, who began with them.

    >>> applied([(b"a", b"1"), (b"b", b"1")], [(b"a", None), (b"c", b"2")])
    [(b'b', b'1'), (b'c', b'2')]
    """
    now: dict[bytes, bytes | None] = {**dict(entries), **dict(changes)}
    return [(key, value) for key, value in sorted(now.items()) if value is not None]
