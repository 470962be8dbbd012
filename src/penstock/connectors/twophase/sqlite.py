"""Rows into a SQLite table, exactly once: a `TransactionalSink` to use, and to read before writing one."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from penstock.changes import Changelog, RowChange, RowKind
from penstock.connectors.twophase.identity import SinkKey
from penstock.connectors.twophase.transactional import TransactionalSink
from penstock.errors import ConfigError, SinkError
from penstock.ids import Epoch

EPOCHS_TABLE = "penstock_epochs"

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True)
class SqliteSink(TransactionalSink[sqlite3.Connection]):
    """Inserts rows (tuples in the order of `columns`, or dicts and objects with fields of these names) into a table.

    With `key=` some of the columns, a row replaces the one with the same key. Then streams that update can be written: `-D`
    deletes the row of its key. (An update does not change the key: that is a deletion and an insertion.)
    """

    path: str
    table: str
    columns: Sequence[str]
    key: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", os.path.abspath(os.path.expanduser(self.path)))
        object.__setattr__(self, "columns", tuple(self.columns))
        object.__setattr__(self, "key", tuple(self.key))
        for name in (self.table, *self.columns):
            if not _IDENTIFIER.fullmatch(name) or name.lower().startswith("sqlite_") or name.lower() == EPOCHS_TABLE:
                hint = "use letters, digits and underscores"
                raise ConfigError(f"{name!r} is not a valid name of a table or a column", hint=hint)
        if not self.columns or len({name.lower() for name in self.columns}) < len(self.columns):
            raise ConfigError(f"{self.table} needs columns with different names: {list(self.columns)}")
        if unknown := sorted(set(self.key) - set(self.columns)):
            raise ConfigError(f"{unknown[0]!r} is in key=, but not in columns=", hint="list it in columns= too")

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        try:
            # The lock comes before the first look at the record, or two drivers might both find it old.
            connection.execute("BEGIN IMMEDIATE")
            columns = ", ".join(_quoted(self.columns))
            key = f", PRIMARY KEY ({', '.join(_quoted(self.key))})" if self.key else ""
            connection.execute(f'CREATE TABLE IF NOT EXISTS "{self.table}" ({columns}{key})')
            connection.execute(
                f'CREATE TABLE IF NOT EXISTS "{EPOCHS_TABLE}" (job TEXT, sink TEXT, epoch INTEGER, PRIMARY KEY (job, sink))'
            )
        except BaseException:
            connection.close()
            raise
        return connection

    def write(self, transaction: sqlite3.Connection, rows: list[Any]) -> None:
        names = ", ".join(_quoted(self.columns))
        verb = "INSERT OR REPLACE" if self.key else "INSERT"
        marks = ", ".join("?" * len(self.columns))
        transaction.executemany(f'{verb} INTO "{self.table}" ({names}) VALUES ({marks})', map(self._values, rows))

    @property
    def changelog(self) -> Changelog:
        return "upsert" if self.key else "append"

    def write_changes(self, transaction: sqlite3.Connection, changes: list[RowChange]) -> None:
        matches = " AND ".join(f"{name} IS ?" for name in _quoted(self.key))
        for deleted, run in groupby(changes, key=lambda change: change.kind is RowKind.DELETE):
            rows = [change.record for change in run]
            if deleted:
                transaction.executemany(f'DELETE FROM "{self.table}" WHERE {matches}', map(self._key_of, rows))
            else:
                self.write(transaction, rows)

    def committed_epoch(self, transaction: sqlite3.Connection, key: SinkKey) -> int | None:
        select = f'SELECT epoch FROM "{EPOCHS_TABLE}" WHERE job = ? AND sink = ?'
        found = transaction.execute(select, (key.job, key.sink)).fetchone()
        return None if found is None else int(found[0])

    def record_epoch(self, transaction: sqlite3.Connection, key: SinkKey, epoch: Epoch) -> None:
        transaction.execute(f'INSERT OR REPLACE INTO "{EPOCHS_TABLE}" VALUES (?, ?, ?)', (key.job, key.sink, epoch))

    def describe(self) -> str:
        return f"table {self.table} in {self.path}"

    def _key_of(self, row: Any) -> tuple[Any, ...]:
        """Of a row that is deleted; it need not have the other columns."""
        if isinstance(row, Mapping):
            return self._named(row, self.key)
        values = self._values(row)
        return tuple(values[self.columns.index(name)] for name in self.key)

    def _named(self, row: Mapping[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
        if missing := [name for name in names if name not in row]:
            raise SinkError(f"A row for the table {self.table} has no {missing[0]}", detail=f"row: {str(row)[:200]}")
        return tuple(row[name] for name in names)

    def _values(self, row: Any) -> tuple[Any, ...]:
        if isinstance(row, Mapping):
            return self._named(row, self.columns)
        values = row if isinstance(row, tuple) else (row,)
        if len(values) != len(self.columns):
            what = f"A row for the table {self.table} has {len(values)} values, not {len(self.columns)}"
            raise SinkError(what, detail=f"row: {str(row)[:200]}")
        return values


def _quoted(names: Sequence[str]) -> list[str]:
    return [f'"{name}"' for name in names]
