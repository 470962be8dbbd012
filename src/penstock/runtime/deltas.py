"""What an epoch has changed of the state of a stage partition: one file, written by the task, or sent with its report."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from penstock.errors import DeltaTooLargeError
from penstock.failpoints import fail_point
from penstock.jobs import paths
from penstock.runtime.committed import CommittedState, remember_delta
from penstock.runtime.job import CompiledJob
from penstock.runtime.messages import EpochOrder
from penstock.state.files.durable import FileIdentity, FileRef, encode_delta, write_delta, write_merged_delta

Entry = tuple[bytes, bytes | None]

REPORTED_UP_TO = 8 * 1024 * 1024
"""A delta of so many bytes travels to the driver in the report; a larger one is written by the task."""


def write_changes(
    job: CompiledJob,
    order: EpochOrder,
    place: tuple[int, int],
    attempt: str,
    changed: Sequence[list[Entry] | Iterator[Entry]],
    committed: CommittedState,
) -> tuple[FileRef | None, bytes]:
    """One file with everything that changed of a stage and partition, and what is to be in it, if it is not written yet. It is
    kept in memory too, for the next epoch, unless there is too much of it."""
    parts = [part for part in changed if part]
    layers = committed.layers() if order.flush else None
    if not parts and layers is None:
        return None, b""
    stage, partition = place
    name = paths.state_file(stage, partition, order.epoch, attempt, "delta")
    identity = FileIdentity(job.job, order.epoch, str(stage), partition, attempt)
    fail_point("task:delta")
    if not all(isinstance(part, list) for part in parts):
        whole = heapq.merge(*parts)
        _check_may_be_written(order, place)
        entire = whole if layers is None else _newest(whole, layers.entries())
        return write_merged_delta(job.storage, name, entire, identity), b""
    entries = list(parts[0]) if len(parts) == 1 else sorted(entry for part in parts for entry in part)
    if layers is not None:
        entries = sorted({**layers.newest, **dict(entries)}.items())
    content = b""
    if order.deltas == "written":
        ref = write_delta(job.storage, name, entries, identity)
    else:
        ref, data = encode_delta(name, entries, identity)
        if len(data) > REPORTED_UP_TO:
            _check_may_be_written(order, place)
            job.storage.create(name, data)
        else:
            committed.spool.keep(name, data)
            content = data if order.deltas == "reported" else b""
    remember_delta(ref, entries)
    return ref, content


def _check_may_be_written(order: EpochOrder, place: tuple[int, int]) -> None:
    if order.deltas == "kept":
        raise DeltaTooLargeError(
            f"epoch {order.epoch} changed too much of stage {place[0]}, partition {place[1]} to be kept",
            hint="the epoch is run again as a checkpoint",
        )


def _newest(changed: Iterator[Entry], layers: list[Entry]) -> Iterator[Entry]:
    """Both, in order; what changed now wins."""
    ranked = heapq.merge(((key, 0, value) for key, value in changed), ((key, 1, value) for key, value in layers))
    for key, versions in groupby(ranked, key=itemgetter(0)):
        yield key, next(versions)[2]
