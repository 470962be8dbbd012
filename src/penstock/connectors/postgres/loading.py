"""A transaction that brings the rows of an epoch into a table by COPY.

Rows that are added go straight into the table. Changes go into a temporary table first, and the newest of each key from there:
so a key that changed a thousand times in an epoch is written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
from psycopg import sql

from penstock.connectors.postgres.tables import Column, Table, as_json
from penstock.errors import SinkError

_CHANGES = sql.Identifier("pg_temp", "penstock_changes")
_NUMBER, _DELETED = sql.Identifier("penstock number"), sql.Identifier("penstock deleted")
_JSON = ("json", "jsonb")
_DELETE = "DELETE FROM {table} AS old USING ({newest}) AS new WHERE new.{deleted} AND {same}"
_REPLACE = """INSERT INTO {table} ({columns}) SELECT {columns} FROM ({newest}) AS new WHERE NOT new.{deleted}
ON CONFLICT ({key}) DO {replaced}"""


class Loading:
    """`columns`: those that are written, in order; `key`: some of them, if rows replace those of their key."""

    def __init__(self, connection: psycopg.Connection[Any], table: Table, columns: Sequence[str], key: Sequence[str]) -> None:
        self.connection = connection
        self._table = table
        self._columns = tuple(columns)
        self._key = tuple(key)
        self._changes = 0
        self._types: list[str] | None = None

    def prepare(self, *, patience_ms: int) -> None:
        """Settings of this transaction; a server that may forget what it confirmed is told not to."""
        for name, value in (
            ("lock_timeout", f"{patience_ms}ms"),
            ("idle_in_transaction_session_timeout", f"{patience_ms}ms"),
            ("timezone", "UTC"),
        ):
            self.connection.execute("SELECT set_config(%s, %s, true)", (name, value))
        self.connection.execute(
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
        )

    def create(self, columns: Sequence[Column]) -> None:
        """The table, unless it is there."""
        if self.is_there(self._table):
            return
        parts = [
            sql.SQL("{} {}{}").format(
                sql.Identifier(column.name),
                sql.SQL(column.type),  # one of tables.py, never from outside
                sql.SQL("" if column.nullable and column.name not in self._key else " NOT NULL"),
            )
            for column in columns
        ]
        if self._key:
            parts.append(sql.SQL("PRIMARY KEY ({})").format(_list(self._key)))
        self.connection.execute(sql.SQL("CREATE TABLE {} ({})").format(_table(self._table), sql.SQL(", ").join(parts)))

    def is_there(self, table: Table) -> bool:
        found = self.connection.execute(
            "SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
            (table.namespace, table.name),
        ).fetchone()
        return found is not None

    def append(self, rows: Iterable[Sequence[Any]]) -> None:
        types = self._known_types()
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(_table(self._table), _list(self._columns))
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(_fitted(row, types))

    def change(self, rows: Iterable[tuple[bool, Sequence[Any]]]) -> None:
        """Rows that replace those of their key, or (True) whose key is deleted; they take effect by `merge`."""
        types = self._known_types()
        if not self._changes:
            self.connection.execute(
                sql.SQL(
                    "CREATE TEMPORARY TABLE penstock_changes ON COMMIT DROP AS "
                    "SELECT {}, 0::bigint AS {}, false AS {} FROM {} WITH NO DATA"
                ).format(_list(self._columns), _NUMBER, _DELETED, _table(self._table))
            )
        statement = sql.SQL("COPY {} ({}, {}, {}) FROM STDIN").format(_CHANGES, _list(self._columns), _NUMBER, _DELETED)
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            for deleted, row in rows:
                self._changes += 1
                copy.write_row((*_fitted(row, types), self._changes, deleted))

    def merge(self) -> None:
        """The newest change of each key, into the table."""
        if not self._changes:
            return
        names = {
            "table": _table(self._table),
            "columns": _list(self._columns),
            "key": _list(self._key),
            "newest": sql.SQL("SELECT DISTINCT ON ({key}) * FROM {changes} ORDER BY {key}, {number} DESC").format(
                key=_list(self._key), changes=_CHANGES, number=_NUMBER
            ),
            "deleted": _DELETED,
            "same": sql.SQL(" AND ").join(sql.SQL("old.{0} = new.{0}").format(sql.Identifier(name)) for name in self._key),
            "replaced": self._replacement(),
        }
        for statement in (_DELETE, _REPLACE):
            self.connection.execute(sql.SQL(statement).format(**names))
        self._changes = 0

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()

    def close(self) -> None:
        self.connection.close()

    def _replacement(self) -> sql.Composable:
        others = [name for name in self._columns if name not in self._key]
        if not others:
            return sql.SQL("NOTHING")
        sets = (sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
        return sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(sets))

    def _known_types(self) -> list[str]:
        """Of the columns, as the database has them."""
        if self._types is None:
            found = dict(
                self.connection.execute(
                    "SELECT a.attname, format_type(a.atttypid, NULL) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
                    "JOIN pg_namespace n ON n.oid = c.relnamespace "
                    "WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped",
                    (self._table.namespace, self._table.name),
                ).fetchall()
            )
            if not found:
                raise SinkError(
                    f"there is no table {self._table}",
                    hint="create it, or have it created: create=Record. What is staged is kept",
                    nature="configuration",
                )
            if missing := [name for name in self._columns if name not in found]:
                raise SinkError(
                    f"the table {self._table} has no column {missing[0]}",
                    detail=f"it has {', '.join(found)}",
                    hint="add it to the table. What is staged is kept",
                    nature="configuration",
                )
            self._types = [found[name] for name in self._columns]
        return self._types


def _fitted(row: Sequence[Any], types: Sequence[str]) -> list[Any]:
    """Values as COPY takes them: structures as JSON, unless the column is an array."""
    return [
        as_json(value) if isinstance(value, dict) or (kind in _JSON and value is not None) else value
        for value, kind in zip(row, types, strict=True)
    ]


def _table(table: Table) -> sql.Identifier:
    return sql.Identifier(table.namespace, table.name)


def _list(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
