"""Windows of all kinds, by record and over columns: restored at another parallelism, they give what they would have."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.files.reading.published import read_rows
from penstock.snapshots.savepoint.savepoint import make_savepoint
from penstock.storage import open_storage
from penstock.testing import execute_inline
from tests.spark.programs import windows as job


def output(*folders: Path) -> Counter[str]:
    """Results and late records. In which order windows of a key fire depends on the epochs: `of_key` tells that."""
    kinds = [folder / kind for folder in folders for kind in ("results", "late")]
    rows: Iterable[Any] = (row for kind in kinds if kind.exists() for row in read_rows(kind))
    return Counter(json.dumps({**row, "of_key": 0}, sort_keys=True) for row in rows)


@pytest.mark.parametrize(("epochs", "parallelism"), [(2, 3), (3, 1)])
def test_restored_at_another_parallelism(epochs: int, parallelism: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "EVENTS", 1_600)
    first, second, undisturbed = tmp_path / "first", tmp_path / "second", tmp_path / "undisturbed"
    settings: dict[str, Any] = {"max_records_per_epoch": 450}
    assert not execute_inline(job.program(first, **settings), epochs=epochs).finished
    make_savepoint(open_storage(first / "storage"), to=str(tmp_path / "savepoint"))
    restored = {**settings, "parallelism": parallelism, "restore_from": str(tmp_path / "savepoint")}
    assert execute_inline(job.program(second, **restored)).finished
    assert execute_inline(job.program(undisturbed, **settings)).finished
    assert min(output(first).total(), output(second).total()) > 300
    assert output(first, second) == output(undisturbed)
