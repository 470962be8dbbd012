"""Is what came out the second time what was committed?

Compared are: every entry of state, timers included; watermarks and the sources' clocks; how many records each step took and gave.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from penstock.epochs.planning.report_merge import metrics_of, watermarks_of
from penstock.ids import Milliseconds
from penstock.jobs import paths
from penstock.jobs.manifest import Manifest, StateLayout
from penstock.runtime.messages import TaskReport
from penstock.snapshots.replay.entries import StateForms, readable, readable_key
from penstock.snapshots.replay.result import ABSENT, NO_KEY, Difference, Verdict
from penstock.state.entries.store_keys import group_of_store_key
from penstock.state.files.durable import FileRef, read_entries
from penstock.state.files.merging import read_live
from penstock.state.key_groups import kept_groups_of
from penstock.storage import Storage

LISTED = 20
"""How many differences are listed; the rest are counted."""

_COMPACTED = re.compile(r"\d+-c\d+")

Entries = dict[bytes, bytes | None]


def verify(storage: Storage, forms: StateForms, parent: Manifest, committed: Manifest, ran: list[list[TaskReport]]) -> Verdict:
    """Compare the reports of replayed epochs with the manifest they led to."""
    then = entries_in(storage, new_files(parent.state, committed.state))
    now = entries_in(storage, [report.state for reports in ran for report in _in_order(reports) if report.state is not None])
    found = [*_metrics(committed, ran), *_states(storage, forms, parent.state, then, now), *_times(parent, committed, ran)]
    return Verdict(
        reproduced=not found, entries=len(then.keys() | now.keys()), differences=found[:LISTED], more=max(0, len(found) - LISTED)
    )


def _in_order(reports: Iterable[TaskReport]) -> list[TaskReport]:
    return sorted(reports, key=lambda report: (report.stage, report.partition))


def new_files(before: StateLayout, after: StateLayout) -> list[FileRef]:
    """The files that hold what changed between two manifests of one layout: not those into which older ones were merged."""
    old = {ref.name for stage in before.chains for chain in stage for ref in chain}
    return [
        ref
        for stage in after.chains
        for chain in stage
        for ref in chain
        if ref.name not in old and not _COMPACTED.fullmatch(paths.attempt_of_state_file(ref.name))
    ]


def entries_in(storage: Storage, files: Iterable[FileRef]) -> Entries:
    """All entries of some files, later ones over earlier ones."""
    found: Entries = {}
    for ref in files:
        for keys, values in read_entries(storage, ref):
            found.update(zip(keys, values, strict=True))
    return found


def _states(storage: Storage, forms: StateForms, before: StateLayout, then: Entries, now: Entries) -> Iterator[Difference]:
    differing = [key for key in sorted(then.keys() | now.keys()) if then.get(key, ABSENT) != now.get(key, ABSENT)]
    unsure = [key for key in differing if key not in then or key not in now]
    was = _before(storage, before, unsure)
    for key in differing:
        left, right = then.get(key, was.get(key)), now.get(key, was.get(key))
        if left != right:  # an entry that is written as it was, or removed where none was, changes nothing
            yield _difference(forms, key, left, right)


def _difference(forms: StateForms, store_key: bytes, then: bytes | None, now: bytes | None) -> Difference:
    form = forms.of_entry(store_key)
    if form is None:
        return Difference(what="state that the program no longer has", committed=then, replayed=now)
    place = form.place(store_key)
    if form.kind.many_keys:
        what = f"state {form.name!r}, rows of time {place.time}"
        rows = [{readable_key(form, k): v for k, v in form.kind.rows(data).items()} for data in (then, now)]
        return Difference(what=what, committed=rows[0], replayed=rows[1], step=form.step)
    what, key = f"state {form.name!r}", readable_key(form, place.key)
    if form.sub_keys is not None:
        what += f"[{form.sub_keys.decode(place.tail)!r}]"
    left, right = (readable(form, place, [data]) for data in (then, now))
    return Difference(what=what, committed=left, replayed=right, step=form.step, key=key)


def _before(storage: Storage, layout: StateLayout, wanted: list[bytes]) -> Entries:
    """What some entries were before."""
    found: Entries = {}
    if not wanted:
        return found
    missing, groups = set(wanted), {group_of_store_key(key) for key in wanted}
    for stage in layout.chains:
        for partition, chain in enumerate(stage):
            owned = kept_groups_of(partition, layout.parallelism, layout.max_parallelism)
            if groups.isdisjoint(owned):
                continue
            for keys, values in read_live(storage, chain, owned):
                found.update((key, value) for key, value in zip(keys, values, strict=True) if key in missing)
    return found


def _times(parent: Manifest, committed: Manifest, ran: list[list[TaskReport]]) -> Iterator[Difference]:
    watermarks: dict[str, Milliseconds] = dict(parent.watermarks)
    clocks: dict[str, dict[str, Any]] = {}
    for reports in ran:
        watermarks.update(watermarks_of(reports))
    for report in ran[-1]:
        for step, reported in report.clocks.items():
            clocks.setdefault(step, {}).update({p: c for p, c in reported.items() if c is not None})
    for step in sorted(watermarks.keys() | committed.watermarks.keys()):
        left, right = committed.watermarks.get(step, ABSENT), watermarks.get(step, ABSENT)
        if left != right:
            yield Difference(what="watermark", committed=left, replayed=right, step=step)
    for step, state in sorted(committed.sources.items()):
        for partition, clock in sorted(clocks.get(step, {}).items()):
            left, right = msgspec.to_builtins(state.clocks.get(partition)), msgspec.to_builtins(clock)
            if left != right:
                yield Difference(what=f"clock of partition {partition}", committed=left, replayed=right, step=step)


def _metrics(committed: Manifest, ran: list[list[TaskReport]]) -> Iterator[Difference]:
    """How many records there were; of epochs that were committed together, in all of them."""
    now = metrics_of([report for reports in ran for report in reports])
    for step in sorted(now.keys() & committed.metrics.keys()):
        then = committed.metrics[step]
        for what, name in (("records in", "records_in"), ("records out", "records_out"), ("records skipped", "skipped")):
            left, right = getattr(then, name), getattr(now[step], name)
            if left != right:
                yield Difference(what=what, committed=left, replayed=right, step=step, key=NO_KEY)
