"""Which versions of tables the next epoch uses.

Law: which version of a table an epoch uses is in its order, and in its manifest: every attempt, a recovery and a replay use the
same. A table changes between epochs only.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import pyarrow as pa

from penstock.errors import AlreadyExistsError, PenstockError, SourceError
from penstock.ids import Milliseconds, StepId, Term
from penstock.jobs import paths
from penstock.jobs.source_order import TableVersion
from penstock.runtime.job import CompiledJob
from penstock.storage import Storage
from penstock.storage.tables import encode_table

log = logging.getLogger("penstock")

Versions = Mapping[str, TableVersion]


class Loads(Protocol):
    """Where a table comes from. On the driver only."""

    refresh_ms: Milliseconds | None
    """How old a version may get; None: until somebody asks for another."""

    def load(self) -> pa.Table:
        """The table as it is now."""
        ...

    def changed(self, digest: str) -> bool:
        """Is this known to be another table than the one with this digest, without loading it?"""
        ...

    def describe(self) -> str: ...


@runtime_checkable
class LooksUp(Protocol):
    """A definition of a step that looks up in a table."""

    table: Loads


class TableKeeper:
    """Loads the tables of a job's steps when they are due, and writes each version once."""

    def __init__(self, job: CompiledJob, term: Term, storage: Storage) -> None:
        self._tables: dict[StepId, Loads] = {
            step.step: step.definition.table
            for stage in job.stages
            for step in stage.steps
            if isinstance(step.definition, LooksUp)
        }
        self._term = term
        self._storage = storage
        self._sure: set[str] = set()
        """Files that are known to be there."""
        self.asked: set[str] = set()
        """Steps whose tables are to be loaded anew."""

    def ask(self, step: object) -> tuple[bool, str]:
        """The table of a step, or of all steps, is to be loaded anew for the next epoch; what to answer."""
        wanted = set(self._tables) if step is None else {StepId(str(step))} & self._tables.keys()
        if not wanted:
            known = f"; steps with one: {', '.join(sorted(self._tables))}" if self._tables else ""
            return False, f"no step {step!r} has a table{known}" if step is not None else "no step has a table"
        self.asked |= wanted
        return True, f"the next epoch loads the table{'s' * (len(wanted) != 1)} of {', '.join(sorted(wanted))}"

    def versions(self, before: Versions, now: Milliseconds) -> dict[str, TableVersion]:
        """Of the epoch after one that used these. A table that cannot be loaded again stays as it is."""
        found = {}
        for step, table in self._tables.items():
            held = before.get(step)
            if held is not None and not self._is_due(step, table, held, now):
                found[str(step)] = held
                continue
            try:
                found[str(step)] = self._load(step, table, held, now)
            except PenstockError as error:
                if held is None or not self._is_there(held):
                    raise
                log.warning("%s; it stays as it is: %s", error.what, error.detail)
                found[str(step)] = TableVersion(held.number, held.path, held.digest, held.rows, now)
            self.asked.discard(step)
        return found

    def _is_due(self, step: StepId, table: Loads, held: TableVersion, now: Milliseconds) -> bool:
        if step in self.asked or table.changed(held.digest) or not self._is_there(held):
            return True
        return table.refresh_ms is not None and now >= held.loaded_ms + table.refresh_ms

    def _is_there(self, version: TableVersion) -> bool:
        if version.path not in self._sure and self._storage.exists(version.path):
            self._sure.add(version.path)
        return version.path in self._sure

    def _load(self, step: StepId, table: Loads, held: TableVersion | None, now: Milliseconds) -> TableVersion:
        try:
            loaded = table.load()
        except Exception as error:
            if isinstance(error, PenstockError):
                raise
            raise SourceError(
                f"the table of step {step!r} cannot be loaded", detail=f"{table.describe()}\n{type(error).__name__}: {error}"
            ) from error
        data = encode_table(loaded)
        digest = hashlib.sha256(data).hexdigest()[:16]
        if held is not None and held.digest == digest and self._is_there(held):
            return TableVersion(held.number, held.path, digest, loaded.num_rows, now)
        number = 1 if held is None else held.number + 1
        path = paths.table(self._term, number, digest)
        try:
            self._storage.create(path, data)
        except AlreadyExistsError:
            pass  # by this driver, for an epoch that failed
        self._sure.add(path)
        return TableVersion(number, path, digest, loaded.num_rows, now)
