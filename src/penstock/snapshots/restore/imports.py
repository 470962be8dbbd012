"""State files of another place, copied into the job's own storage, so that the place may go afterwards.

Laws:
- A copy is created exclusively, under a name that carries the term, and read back: size, checksums and every block are what the
  snapshot says. What is damaged is refused before anything names it.
- Only files that the layout still names are copied, each once however many partitions read from it.
- A copy that no manifest comes to name is an orphan of its term.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from penstock.ids import Term
from penstock.jobs import paths
from penstock.jobs.manifest import StateLayout
from penstock.state.files.copying import copy_file
from penstock.state.files.durable import FileRef
from penstock.storage import Storage

_AT_ONCE = 4

Copied = Callable[[int, int], None]
"""Told of bytes copied, and of all there are to copy."""


def bring_files(
    source: Storage, storage: Storage, layout: StateLayout, term: Term, identity: str, copied: Copied = lambda done, total: None
) -> StateLayout:
    """The layout, with every file it names copied from `source` into `storage`."""
    refs = {ref.name: ref for stage in layout.chains for chain in stage for ref in chain}
    names = {name: paths.imported(term, identity, name) for name in refs}
    total, done = sum(ref.size for ref in refs.values()), 0
    copied(0, total)
    with ThreadPoolExecutor(_AT_ONCE, "penstock-import") as threads:
        copies = {name: threads.submit(_copy, source, storage, refs[name], names[name]) for name in sorted(names)}
        try:
            for name, copy in copies.items():
                copy.result()
                done += refs[name].size
                copied(done, total)
        finally:
            threads.shutdown(cancel_futures=True)
    chains = [[[_moved(ref, names[ref.name]) for ref in chain] for chain in stage] for stage in layout.chains]
    return msgspec.structs.replace(layout, chains=chains)


def _copy(source: Storage, storage: Storage, ref: FileRef, name: str) -> None:
    hint = "use another copy of the snapshot, or another snapshot"
    copy_file(source, storage, ref, name, hint=hint, point="restore:half-copied")


def _moved(ref: FileRef, name: str) -> FileRef:
    """The reference to a copy. The marks of files that were merged into it are of no use to a store that has none of them."""
    return msgspec.structs.replace(ref, name=name, covers=None)
