"""PostgreSQL: tables as a sink, exactly once.

- `sink`: the definition; `rows` is how rows are staged in the worker; `committer` writes them from the driver, by way of
  `loading`, which is one transaction.
- `tables`: names of tables and columns, and the columns that a class of records asks for.
- `server`: how connections are made, with secrets looked up; which errors pass by themselves.
"""

from penstock.connectors.postgres.sink import PostgresSink

__all__ = ["PostgresSink"]
