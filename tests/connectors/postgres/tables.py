"""Tables for tests: named, made, and read by a client that knows nothing of us."""

from __future__ import annotations

from itertools import count
from typing import Any

import psycopg

from tests.servers.postgres import PostgresServer

_numbers = count()


def new_table() -> str:
    return f"table {next(_numbers)}"


def run(server: PostgresServer, statement: str, *values: Any) -> list[Any]:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        done = connection.execute(statement.encode(), values or None)
        rows: list[Any] = done.fetchall() if done.description else []
        return rows


def content(server: PostgresServer, table: str, columns: str = "*", order: str = "ctid") -> list[Any]:
    """The rows of a table; none if there is no table."""
    try:
        return run(server, f'SELECT {columns} FROM "{table}" ORDER BY {order}')
    except psycopg.errors.UndefinedTable:
        return []
