"""The batches of one streaming query, as the job's storage has them.

A batch without rows makes no epoch. It leaves a marker, so that the gap in the numbers of committed batches is accounted for.
"""

from __future__ import annotations

import logging
import re

from penstock.errors import AlreadyExistsError, PenstockError, SourceError
from penstock.storage import Storage

log = logging.getLogger("penstock.spark_feed")

KEPT_BATCHES = 10
_EMPTY = "empty"
_BATCH = re.compile(r"[0-9]{10,}")


class Ledger:
    def __init__(self, storage: Storage, folder: str, checkpoint: str) -> None:
        self._storage = storage
        self._folder = folder
        self._checkpoint = checkpoint
        self._present = {int(name) for name in self._names() if _BATCH.fullmatch(name)}

    def folder(self, number: int) -> str:
        self._present.add(number)
        return f"{self._folder}/{number:010d}"

    def mark_empty(self, number: int) -> None:
        try:
            self._storage.create(f"{self.folder(number)}/{_EMPTY}", b"")
        except AlreadyExistsError:
            pass

    def check_follows(self, last: int, number: int) -> None:
        """Every batch between the last one committed and this one must have been empty."""
        missing = any(not self._storage.exists(f"{self._folder}/{n:010d}/{_EMPTY}") for n in range(last + 1, number))
        if number < last or missing:
            raise strangers(
                f"the job has committed batch {last}, and Spark delivers batch {number}", self._checkpoint, self._storage
            )

    def remove_old(self, last: int) -> None:
        """Remove all but the last batches, as far as that is possible."""
        for number in sorted(n for n in list(self._present) if n <= last - KEPT_BATCHES):
            try:
                self._storage.delete([listed.path for listed in self._storage.list(self.folder(number))])
            except PenstockError as error:
                log.warning("batch %d in %s was not removed: %s", number, self._folder, error)
                return
            self._present.discard(number)

    def _names(self) -> set[str]:
        depth = self._folder.count("/") + 1
        return {listed.path.split("/")[depth] for listed in self._storage.list(self._folder)}


def strangers(detail: str, checkpoint: str, storage: Storage) -> SourceError:
    return SourceError(
        "the checkpoint of the streaming query and the job's storage do not belong together",
        detail=f"{detail}\ncheckpoint: {checkpoint}\nstorage: {storage.uri}",
        hint="put back the checkpoint that goes with this storage; or start the step under another name, which reads from "
        "where the Spark source begins",
        nature="configuration",
    )
