"""A savepoint with another number of key groups, and by the newest key hash.

Laws:
- Every entry is there again, in the group that its key has now. Values stay byte for byte.
- An entry that holds rows of many keys is cut by the new groups (see `StateKind.regroup`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from penstock.snapshots.edit.editing import parent_of
from penstock.snapshots.edit.sorting import Sorter, as_entries, write_entries
from penstock.snapshots.savepoint.format import SavepointInfo, SavepointWriter
from penstock.snapshots.view.content import open_content
from penstock.state.entries.entry_columns import GroupedEntries
from penstock.state.entries.kinds import StateKind, kind_of
from penstock.state.entries.state_info import StateInfo
from penstock.state.key_groups import NEW_JOBS, KeyGroups, check_parallelism
from penstock.storage import open_storage


def regroup(uri: str, max_parallelism: int | None, to: str, *, told: Callable[[str, str], None] | None = None) -> SavepointInfo:
    """Write a snapshot again with `max_parallelism` key groups (None: as many as it has), as a savepoint in an empty folder.

    Keys are grouped by the key hash of new jobs, whatever they were grouped by. `told` is called with step and name of each state
    before it is written.
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
                    entries, kind = content.entries(saved.number), kind_of(saved.info)
                    write_entries(writer, regrouped(entries, kind, saved.info, info.key_groups, groups, sorter))
            config = {**info.config, "max_parallelism": groups.count}
            return savepoint.finish(**{**info.about(), "config": config, "parent": parent_of(content)})


def regrouped(
    entries: GroupedEntries, kind: StateKind, info: StateInfo, before: KeyGroups, after: KeyGroups, sorter: Sorter
) -> GroupedEntries:
    """Entries of a kind by the groups that their keys have among others."""
    if before == after:
        return entries
    for group, raw_keys, raw_values in entries:
        sorter.add(kind.regroup(group, raw_keys, raw_values, info, after))
    return kind.merge_regrouped(as_entries(sorter.blocks()), info)
