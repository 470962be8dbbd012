"""United operator state: when the parallelism changes every partition gets the elements of all, before the take-over epoch.

Law: as of migrations, nothing has changed until the manifest names the one more file that each partition gets.
"""

from __future__ import annotations

import msgspec

from penstock.ids import Epoch, JobId, Term
from penstock.jobs import paths
from penstock.jobs.manifest import StateLayout
from penstock.plan.nodes import Graph
from penstock.state.descriptors import OperatorListState
from penstock.state.files.durable import FileIdentity, FileRef, write_delta
from penstock.state.files.merging import read_live
from penstock.state.key_groups import ANY_GROUP, DealtGroups, groups_of
from penstock.state.overlay.elements import element_key, element_keys
from penstock.storage import Storage


def unite_states(
    storage: Storage,
    layout: StateLayout,
    before: StateLayout | None,
    graph: Graph,
    ids: dict[tuple[str, str], int],
    *,
    job: JobId,
    term: Term,
    epoch: Epoch,
) -> StateLayout:
    """The layout with united state dealt out anew, if that was of another parallelism."""
    declared = [one for node in graph for one in node.states()]
    united = {ids[one.step, one.name] for one in declared if isinstance(one.state, OperatorListState) and one.state.united}
    if before is None or before.parallelism == layout.parallelism or not united:
        return layout
    groups = DealtGroups(layout.max_parallelism, layout.key_hash)
    chains = [[list(chain) for chain in stage] for stage in layout.chains]
    for stage, partitions in enumerate(chains):
        for number in united.intersection(layout.stages[stage]):
            held = [_elements(storage, chain, number) for chain in partitions]
            elements = [data for _, data in sorted(((key, data) for of in held for key, data in of.items()), key=_age)]
            for partition, chain in enumerate(partitions if elements else ()):
                own = groups_of(partition, layout.parallelism, layout.max_parallelism)
                entries: dict[bytes, bytes | None] = dict.fromkeys(held[partition])
                entries.update(zip(element_keys(epoch, number, own, groups), elements, strict=False))
                attempt = f"{term}-u{number}-{partition}"
                name = paths.state_file(stage, partition, epoch, attempt, "delta")
                identity = FileIdentity(job, epoch, str(stage), partition, attempt)
                chain.append(write_delta(storage, name, sorted(entries.items()), identity))
    return msgspec.structs.replace(layout, chains=chains)


def _elements(storage: Storage, chain: list[FileRef], number: int) -> dict[bytes, bytes]:
    live = read_live(storage, chain, ANY_GROUP, number.__eq__)
    return {key: data for keys, values in live for key, data in zip(keys, values, strict=True)}


def _age(entry: tuple[bytes, bytes]) -> tuple[int, int, int]:
    return element_key(entry[0])
