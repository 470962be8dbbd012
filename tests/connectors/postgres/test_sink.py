from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import psycopg
import pyarrow as pa
import pytest

from penstock import StreamEnvironment
from penstock.changes import RowKind
from penstock.connectors.postgres import PostgresSink
from penstock.connectors.twophase import SinkKey
from penstock.errors import ConfigError, EnvironmentProblemError, SinkError
from penstock.ids import Epoch
from penstock.records import Records
from penstock.storage import LocalStorage, Storage
from penstock.testing.contracts import SINK_CHECKS, SinkCase
from penstock.testing.contracts.sink_checks import SinkCheck
from tests.connectors.postgres.tables import content, new_table, run
from tests.connectors.sinking import JOB, STEP, committer, stage
from tests.servers.postgres import PostgresServer


@dataclass
class Numbered:
    id: int
    text: str


class Everything(msgspec.Struct):
    id: int
    real: float
    exact: Decimal | None
    at: dt.datetime
    day: dt.date
    took: dt.timedelta
    raw: bytes
    name: UUID
    tags: list[str]
    more: dict[str, Any] | None


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path / "job")


def into(server: PostgresServer, table: str, columns: Sequence[str] = (), **more: Any) -> PostgresSink:
    """Tests are all the same job: each has a ledger of its own."""
    return PostgresSink(server.dsn, table, columns, ledger=f"ledger {new_table()}", **more)


def changed(kinds: str, rows: list[Any]) -> Records:
    return Records(rows, kinds=np.asarray([RowKind(kind).code for kind in kinds.split()], dtype=np.int8))


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_contract(check: SinkCheck, keyed: bool, postgres: PostgresServer, tmp_path: Path) -> None:
    numbers = count()

    def make() -> SinkCase:
        table = new_table()
        sink = into(postgres, table, create=Numbered, key=["id"] if keyed else [])
        visible = lambda: [row[0] for row in content(postgres, table, "id", "id" if keyed else "ctid")]  # noqa: E731
        return SinkCase(sink=sink, storage=LocalStorage(tmp_path / str(next(numbers))), visible=visible)

    check(make)


def test_a_table_is_made_of_a_class(postgres: PostgresServer, storage: Storage) -> None:
    table = new_table()
    sink = into(postgres, table, create=Everything, key=["id"])
    zone = dt.timezone(dt.timedelta(hours=2))
    row = Everything(
        id=-(2**63),
        real=float("nan"),
        exact=Decimal("1" * 400 + ".5"),
        at=dt.datetime(9999, 12, 31, 23, 59, 59, 999999, zone),
        day=dt.date(1, 1, 1),
        took=dt.timedelta(days=-1, microseconds=7),
        raw=b"\0\xff\\x",
        name=UUID(int=7),
        tags=["a,b", '"', "", "NULL", "ü\\n"],
        more={"a": [1, None, {"b": float("inf")}]},
    )
    plain = Everything(1, float("-inf"), None, row.at, row.day, row.took, b"", row.name, [], None)
    committer(sink, storage).commit(Epoch(1), [stage(sink, storage, 1, [row, plain])])
    first, second = content(postgres, table, order='"id"')
    assert str(first[1]) == "nan"
    assert first[2:] == (row.exact, row.at, row.day, row.took, row.raw, row.name, row.tags, {"a": [1, None, {"b": None}]})
    assert second[1:] == (float("-inf"), None, row.at, row.day, row.took, b"", row.name, [], None)
    assert run(postgres, f'SELECT pg_typeof(exact)::text, pg_typeof(at)::text FROM "{table}" LIMIT 1') == [
        ("numeric", "timestamp with time zone")
    ]


def test_odd_values_into_a_table_that_is_there(postgres: PostgresServer, storage: Storage) -> None:
    """Text that the type of the column understands will do: so what Python has no type for is written too."""
    table = new_table()
    columns = "big numeric, at timestamp, number double precision, text text, flag boolean, data json"
    run(postgres, f"CREATE TABLE \"{table}\" ({columns}, other text DEFAULT 'kept')")
    sink = into(postgres, table, ["big", "at", "number", "text", "flag", "data"])
    rows = [
        (10**400, "10000-01-01", 1e308, "\\N", True, [1, "x"]),
        ("NaN", "-infinity", "Infinity", "tab\tnew\nline\\", None, "text"),
        (None, "2026-01-02T03:00", np.float64(5e-324), "", False, None),
    ]
    committer(sink, storage).commit(Epoch(1), [stage(sink, storage, 1, rows)])
    found = content(postgres, table, "big::text, at::text, number, text, flag, data::text, other")
    assert found == [
        ("1" + "0" * 400, "10000-01-01 00:00:00", 1e308, "\\N", True, '[1,"x"]', "kept"),
        ("NaN", "-infinity", float("inf"), "tab\tnew\nline\\", None, '"text"', "kept"),
        (None, "2026-01-02 03:00:00", 5e-324, "", False, None, "kept"),
    ]


def test_nul_characters(postgres: PostgresServer, storage: Storage) -> None:
    table = new_table()
    sink = into(postgres, table, create=Numbered)
    with pytest.raises(SinkError, match="cannot encode its rows") as refused:
        stage(sink, storage, 1, [Numbered(1, "a\0b")])
    assert "NUL character" in str(refused.value)
    sink = replace(sink, on_nul="replace")
    committer(sink, storage).commit(Epoch(1), [stage(sink, storage, 1, [Numbered(1, "a\0b")])])
    assert content(postgres, table) == [(1, "a\ufffdb")]


def test_changes_make_a_table(postgres: PostgresServer, storage: Storage) -> None:
    table = new_table()
    sink = into(postgres, table, create=Numbered, key=["id"])
    run(postgres, f'CREATE TABLE "{table}" (id bigint PRIMARY KEY, text text NOT NULL)')
    rows = changed("+I +I +U -D +I +I -D -D", [(1, "a"), (2, "a"), (1, "b"), (2, "a"), (2, "c"), (3, "x"), {"id": 3}, {"id": 9}])
    first, second = stage(sink, storage, 1, rows), stage(sink, storage, 2, changed("-D +I", [{"id": 1}, Numbered(4, "d")]))
    for _ in range(2):
        committer(sink, storage).commit(Epoch(1), [first])
    assert content(postgres, table, order="id") == [(1, "b"), (2, "c")]
    for _ in range(2):
        committer(sink, storage).commit(Epoch(2), [second])
        committer(sink, storage).commit(Epoch(1), [first])
    assert content(postgres, table, order="id") == [(2, "c"), (4, "d")]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"text": "no key"}, "has no id"),
        (Numbered(None, "x"), "has no value in its key, id"),  # type: ignore[arg-type]
        ((1, 2, 3), "has 3 values, not 2"),
        (object(), "has no id"),
    ],
)
def test_rows_that_no_table_takes_are_refused_where_they_are_made(row: Any, problem: str, storage: Storage) -> None:
    sink = PostgresSink("dbname=x", "t", create=Numbered, key=["id"])
    with pytest.raises(SinkError) as refused:
        stage(sink, storage, 1, [row])
    assert problem in str(refused.value)


def test_what_the_database_refuses_is_named_and_kept(postgres: PostgresServer, storage: Storage) -> None:
    table = new_table()
    sink = into(postgres, table, create=Numbered)
    good, bad = stage(sink, storage, 1, [(1, "x")]), stage(sink, storage, 1, [("seven", "x")], partition=1)
    with pytest.raises(SinkError, match="could not commit epoch 1") as refused:
        committer(sink, storage).commit(Epoch(1), [good, bad])
    assert "seven" in str(refused.value)
    assert "column id" in str(refused.value)
    assert refused.value.nature == "configuration"
    assert content(postgres, table) == []
    run(postgres, f'CREATE TABLE "{table}" (id text, text text)')
    committer(sink, storage).commit(Epoch(1), [good, bad])
    assert content(postgres, table) == [("1", "x"), ("seven", "x")]


def test_tables_that_do_not_fit(postgres: PostgresServer, storage: Storage) -> None:
    table = new_table()
    plain = into(postgres, table, ["id", "text"])
    keyed = replace(plain, key=["id"])
    prepared = stage(plain, storage, 1, [(1, "x")])
    with pytest.raises(SinkError, match="there is no table"):
        committer(plain, storage).commit(Epoch(1), [prepared])
    run(postgres, f'CREATE TABLE "{table}" (id int)')
    with pytest.raises(SinkError, match="has no column text"):
        committer(plain, storage).commit(Epoch(1), [prepared])
    run(postgres, f'ALTER TABLE "{table}" ADD text text')
    with pytest.raises(SinkError, match="primary key"):
        committer(keyed, storage).commit(Epoch(1), [prepared])
    committer(plain, storage).commit(Epoch(1), [prepared])
    assert content(postgres, table) == [(1, "x")]


def test_a_late_driver_waits_and_writes_nothing(postgres: PostgresServer, storage: Storage) -> None:
    """It was stopped in the middle of its transaction; the one that took over waits for the lock, and both have one result."""
    table = new_table()
    sink = into(postgres, table, create=Numbered)
    committer(sink, storage).commit(Epoch(1), [stage(sink, storage, 1, [(1, "x")])])
    prepared = [stage(sink, storage, 2, [(2, "x")])]
    late = sink.connect()
    assert sink.committed_epoch(late, SinkKey(JOB, STEP)) == 1
    new = threading.Thread(target=lambda: committer(sink, storage).commit(Epoch(2), prepared))
    new.start()
    new.join(0.2)
    assert new.is_alive()
    sink.write(late, [(2, "x")])
    sink.record_epoch(late, SinkKey(JOB, STEP), Epoch(2))
    late.commit()
    late.close()
    new.join(30)
    assert content(postgres, table) == [(1, "x"), (2, "x")]


def test_names_are_quoted(postgres: PostgresServer, storage: Storage) -> None:
    table = 'x"; DROP TABLE "y; --' + new_table()
    odd = 'a "quoted" % {name}'
    sink = into(postgres, table, create=pa.schema([(odd, pa.int64()), ("b", pa.decimal128(20, 3))]), key=[odd])
    committer(sink, storage).commit(Epoch(1), [stage(sink, storage, 1, [{odd: 1, "b": Decimal("2.5")}, {odd: 1, "b": None}])])
    quoted = table.replace('"', '""')
    assert run(postgres, f'SELECT * FROM "{quoted}"') == [(1, None)]


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 64, ".t", "s."])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(ConfigError, match="not valid as a name"):
        PostgresSink("dbname=x", name, ["a"])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"columns": []}, "needs columns"),
        ({"columns": ["a", "a"]}, "named twice"),
        ({"columns": "a"}, "not a list"),
        ({"columns": ["a"], "key": ["b"]}, "not in columns"),
        ({"columns": ["a"], "create": Numbered}, "not in create"),
        ({"columns": ["a"], "ledger": "public.t"}, "epochs are recorded"),
        ({"columns": ["penstock number"]}, "cannot be called"),
        ({"create": 7}, "has no columns"),
        ({"columns": ["a"], "on_nul": "drop"}, "not known"),
        ({"columns": ["a"], "patience": 0}, "not valid"),
        ({"columns": ["a"], "options": {"password": "x"}}, "written out in the program"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        PostgresSink("dbname=x", "t", **arguments)


@pytest.mark.parametrize("dsn", ["postgresql://me:pw@host/db", "host=x password=pw", "postgresql://host/db?password=pw"])
def test_passwords_are_named_not_given(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="password in the address"):
        PostgresSink(dsn, "t", ["a"])
    sink = PostgresSink("postgresql://me@host/db?x=1", "t", ["a"], options={"password": "${env:SECRET}"})
    assert sink.describe() == "postgres table t at postgresql://me@host/db"
    assert "SECRET" in repr(sink)


def test_a_database_that_is_not_there(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"password": "${env:OUR_SECRET}"}
    monkeypatch.setenv("OUR_SECRET", "hunter22")
    sink = PostgresSink("postgresql://127.0.0.1:1/db", "t", ["a"], patience=0.01, options=options)
    prepared = stage(sink, storage, 1, [(1,)])
    with pytest.raises(SinkError, match="could not commit epoch 1") as refused:
        committer(sink, storage).commit(Epoch(1), [prepared])
    assert refused.value.nature == "transient"
    assert "hunter22" not in str(refused.value)
    assert storage.exists(prepared["path"])


def test_a_database_that_is_killed_during_a_job(tmp_path: Path) -> None:
    """It is killed before a commit, and comes back: the commit goes on by itself."""
    server = PostgresServer()
    server.start()
    sink = into(server, "t", create=Numbered)
    storage = LocalStorage(tmp_path / "job")
    committer(sink, storage).commit(Epoch(1), [stage(sink, storage, 1, [(1, "x")])])
    server.kill()
    prepared = [stage(sink, storage, 2, [(2, "x")])]
    failed: list[BaseException] = []

    def commit() -> None:
        try:
            committer(sink, storage).commit(Epoch(2), prepared)
        except BaseException as error:
            failed.append(error)

    waiting = threading.Thread(target=commit)
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    server.start()
    waiting.join(60)
    assert failed == []
    assert content(server, "t") == [(1, "x"), (2, "x")]
    server.kill()


def test_a_job_writes_it(postgres: PostgresServer, tmp_path: Path) -> None:
    table = new_table()
    env = StreamEnvironment("rows", executor="inline", parallelism=2, storage=str(tmp_path / "s"), max_records_per_epoch=7)
    env.from_collection([Numbered(n, f"row {n}") for n in range(50)]).sink_to(into(postgres, table, create=Numbered), name="out")
    env.execute()
    assert content(postgres, table, order="id") == [(n, f"row {n}") for n in range(50)]


def test_the_package_is_asked_for_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(EnvironmentProblemError, match="psycopg"):
        PostgresSink("dbname=x", "t", ["a"]).connect()
    assert psycopg is not None
