"""The contract suite over the sinks that need no server."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors import FileSink, SqliteSink, WriteAheadSink, read_output
from penstock.connectors.twophase import PublishId
from penstock.storage import LocalStorage
from penstock.testing.contracts import SINK_CHECKS, SinkCase
from penstock.testing.contracts.sink_checks import SinkCheck


def files(folder: Path) -> SinkCase:
    sink = FileSink(str(folder / "out"))
    visible = lambda: [row["id"] for row in read_output(str(folder / "out"))]  # noqa: E731
    return SinkCase(sink=sink, storage=LocalStorage(folder / "job"), visible=visible)


def sqlite(folder: Path) -> SinkCase:
    folder.mkdir(parents=True)
    sink = SqliteSink(str(folder / "rows.db"), "numbers", ["id", "text"])

    def visible() -> list[int]:
        with sqlite3.connect(sink.path) as database:
            try:
                return [row[0] for row in database.execute("SELECT id FROM numbers ORDER BY rowid")]
            except sqlite3.OperationalError:
                return []

    return SinkCase(sink=sink, storage=LocalStorage(folder / "job"), visible=visible)


@dataclass(frozen=True)
class Ledger(WriteAheadSink):
    """A file for each epoch."""

    folder: str

    def publish(self, id: PublishId, rows: Iterator[Any]) -> None:
        Path(self.folder).mkdir(parents=True, exist_ok=True)
        Path(self.folder, f"{id.epoch:05d}.json").write_text(json.dumps(list(rows)))

    def describe(self) -> str:
        return f"ledger in {self.folder}"


def write_ahead(folder: Path) -> SinkCase:
    ledger = folder / "ledger"

    def visible() -> list[int]:
        return [row["id"] for path in sorted(ledger.glob("*.json")) for row in json.loads(path.read_text())]

    return SinkCase(sink=Ledger(str(ledger)), storage=LocalStorage(folder / "job"), visible=visible)


CASES = (files, sqlite, write_ahead)


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_contract(check: SinkCheck, make: Callable[[Path], SinkCase], tmp_path: Path) -> None:
    numbers = count()
    check(lambda: make(tmp_path / str(next(numbers))))
