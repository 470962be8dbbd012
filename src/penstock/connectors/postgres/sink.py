"""A table of PostgreSQL as a sink, exactly once.

The law is that of `TransactionalSink`: the rows of an epoch and the record of the epoch are written in one transaction, under a
lock on the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from penstock.changes import Changelog, RowChange, RowKind
from penstock.connectors.installed import needed
from penstock.connectors.postgres.committer import PostgresCommitter
from penstock.connectors.postgres.rows import RowShape
from penstock.connectors.postgres.server import checked_address, connect
from penstock.connectors.postgres.tables import checked_columns, columns_of, table_named
from penstock.connectors.protocol import CommitterContext
from penstock.connectors.twophase import SinkKey, TransactionalSink
from penstock.errors import ConfigError
from penstock.ids import Epoch

if TYPE_CHECKING:
    from penstock.connectors.postgres.loading import Loading

LEDGER = "penstock_epochs"
LEDGER_VERSION = 1
_OWN = ("penstock number", "penstock deleted")


@dataclass(frozen=True)
class PostgresSink(TransactionalSink["Loading"]):
    """Rows into a table, `orders` or `sales.orders`, by COPY: an epoch in a transaction.

    - `columns`: what is written, in the order of rows that are tuples; dicts and objects have fields of these names. With
      `create=`, a dataclass, NamedTuple, msgspec Struct or Arrow schema, a table that is not there is created, and its columns
      are the default.
    - `key`: a row replaces the one with the same key, and streams that update can be written: `-D` deletes the row of its key.
      The table has a primary key or unique index on it.
    - `ledger`: the table in which the epochs are recorded; by default `penstock_epochs` beside the table. It is created.
    - `on_nul`: a text with a NUL character, which PostgreSQL cannot hold: "fail", or "replace" it by U+FFFD.
    - `patience`: how long a commit goes on trying while the database does not answer, and waits for locks.
    - `options`: of the connection (TLS, passwords); secrets by reference, `${env:NAME}` or `${file:/path}`.
    """

    dsn: str
    table: str
    columns: Sequence[str] = ()
    _: KW_ONLY
    key: Sequence[str] = ()
    create: Any = None
    ledger: str = ""
    on_nul: Literal["fail", "replace"] = "fail"
    patience: timedelta | float = 600.0
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        what = "PostgresSink"
        object.__setattr__(self, "options", checked_address(self.dsn, self.options, what))
        target = table_named(self.table, what)
        ledger = self.ledger or f"{target.namespace}.{LEDGER}"
        if table_named(ledger, what) == target:
            raise ConfigError(f"{what}: {target} is where epochs are recorded", hint="write to another table")
        object.__setattr__(self, "ledger", ledger)
        known = () if self.create is None else tuple(column.name for column in columns_of(self.create, what))
        columns = checked_columns(self.columns or known, what)
        if not columns:
            raise ConfigError(f"{what}: {target} needs columns", hint='columns=["id", "amount"], or create=Record')
        if known and (unknown := [name for name in columns if name not in known]):
            raise ConfigError(f"{what}: {unknown[0]!r} is in columns=, but not in create=")
        if own := [name for name in columns if name in _OWN]:
            raise ConfigError(f"{what}: a column cannot be called {own[0]!r}")
        key = checked_columns(self.key, what)
        if unknown := [name for name in key if name not in columns]:
            raise ConfigError(f"{what}: {unknown[0]!r} is in key=, but not in columns=", hint="list it in columns= too")
        if self.on_nul not in ("fail", "replace"):
            raise ConfigError(f"on_nul={self.on_nul!r} is not known", hint='use one of "fail", "replace"')
        if not self.patience_s > 0:
            raise ConfigError(f"patience={self.patience!r} is not valid", hint="give seconds, or a timedelta")
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "key", key)

    @property
    def changelog(self) -> Changelog:
        return "upsert" if self.key else "append"

    @property
    def patience_s(self) -> float:
        return self.patience.total_seconds() if isinstance(self.patience, timedelta) else float(self.patience)

    @property
    def shape(self) -> RowShape:
        return RowShape(self.table, tuple(self.columns), tuple(self.key), self.on_nul == "replace")

    def encode(self, rows: list[Any]) -> bytes:
        return self.shape.encode(rows)

    def committer(self, context: CommitterContext) -> PostgresCommitter:
        return PostgresCommitter(self, context)

    def connect(self) -> Loading:
        needed("psycopg", "penstock[postgres]", "PostgresSink")
        from penstock.connectors.postgres.loading import Loading

        connection = connect(self.dsn, self.options, "PostgresSink")
        try:
            loading = Loading(connection, table_named(self.table, ""), self.columns, self.key)
            loading.prepare(patience_ms=max(1, round(self.patience_s * 1000)))
            if self.create is not None:
                loading.create([column for column in columns_of(self.create, "") if column.name in self.columns])
            self._create_ledger(loading)
        except BaseException:
            connection.close()
            raise
        return loading

    def write(self, transaction: Loading, rows: list[Any]) -> None:
        complete = map(self.shape.complete, rows)
        if self.key:
            transaction.change((False, row) for row in complete)
        else:
            transaction.append(complete)

    def write_changes(self, transaction: Loading, changes: list[RowChange]) -> None:
        shape = self.shape
        transaction.change(
            (True, shape.of_deleted(row)) if kind is RowKind.DELETE else (False, shape.complete(row)) for kind, row in changes
        )

    def committed_epoch(self, transaction: Loading, key: SinkKey) -> int | None:
        """The row of the ledger is there before it is looked at, so that there is something to lock."""
        from psycopg import sql

        ledger = self._ledger_name
        insert = sql.SQL("INSERT INTO {} (job, sink, version) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING").format(ledger)
        transaction.connection.execute(insert, (key.job, key.sink, LEDGER_VERSION))
        select = sql.SQL("SELECT epoch, version FROM {} WHERE job = %s AND sink = %s FOR UPDATE").format(ledger)
        found = transaction.connection.execute(select, (key.job, key.sink)).fetchone()
        assert found is not None, "the row was just inserted"
        epoch, version = found
        if version > LEDGER_VERSION:
            raise ConfigError(
                f"the record of {key} in {self.ledger} has the version {version}; this version of Penstock knows {LEDGER_VERSION}"
            )
        return None if epoch is None else int(epoch)

    def record_epoch(self, transaction: Loading, key: SinkKey, epoch: Epoch) -> None:
        from psycopg import sql

        transaction.merge()
        update = sql.SQL("UPDATE {} SET epoch = %s WHERE job = %s AND sink = %s").format(self._ledger_name)
        transaction.connection.execute(update, (epoch, key.job, key.sink))

    def describe(self) -> str:
        by = f", by key {', '.join(self.key)}" if self.key else ""
        return f"postgres table {self.table} at {_shown(self.dsn)}{by}"

    @property
    def _ledger_name(self) -> Any:
        from psycopg import sql

        ledger = table_named(self.ledger, "")
        return sql.Identifier(ledger.namespace, ledger.name)

    def _create_ledger(self, loading: Loading) -> None:
        from psycopg import sql

        if not loading.is_there(table_named(self.ledger, "")):
            loading.connection.execute(
                sql.SQL(
                    "CREATE TABLE {} (job text, sink text, epoch bigint, version integer NOT NULL, PRIMARY KEY (job, sink))"
                ).format(self._ledger_name)
            )


def _shown(dsn: str) -> str:
    """Where the database is: no options of the connection."""
    return dsn.partition("?")[0]
