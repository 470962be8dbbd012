"""The contract suite over the sources that need no server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.connectors import AppendLog, AppendLogSource, CollectionSource, FileSource, GeneratorSource
from penstock.connectors.protocol import Limits, SourceContext
from penstock.ids import JobId, StepId
from penstock.storage import LocalStorage
from penstock.testing.contracts import SOURCE_CHECKS, SourceCase
from penstock.testing.contracts.source_checks import SourceCheck


def squared(n: int) -> int:
    return n * n


def collection(folder: Path) -> SourceCase:
    source = CollectionSource(list(range(10)), partitions=3)
    return SourceCase(source=source, storage=LocalStorage(folder), expected={"0": [0, 1, 2], "1": [3, 4, 5], "2": [6, 7, 8, 9]})


def generator(folder: Path) -> SourceCase:
    expected = {str(k): [n * n for n in range(k, 11, 2)] for k in range(2)}
    return SourceCase(source=GeneratorSource(squared, count=11), storage=LocalStorage(folder), expected=expected)


def files(folder: Path) -> SourceCase:
    inbox = folder / "in"
    inbox.mkdir(exist_ok=True)
    for number in range(4):
        (inbox / f"{number}.json").write_text("".join(json.dumps({"n": 10 * number + i}) + "\n" for i in range(3)))
    lanes = {str(k): [{"n": 10 * number + i} for number in (k, k + 2) for i in range(3)] for k in range(2)}
    source = FileSource(str(inbox), lanes=2)
    return SourceCase(source=source, storage=LocalStorage(folder / "job"), expected=lanes, unit=3)


def append_log(folder: Path) -> SourceCase:
    storage = LocalStorage(folder)
    where = SourceContext(job=JobId("job"), step=StepId("source"), storage=storage, parallelism=2)
    AppendLogSource().enumerator(where).plan(None, Limits(records=1, bytes=1), 0)
    records = [{"n": n} for n in range(11)]
    with AppendLog(storage, "source") as log:
        log.append(records[:4], id="a")
        log.append(records[4:], id="b")
    return SourceCase(source=AppendLogSource(), storage=storage, expected={"0": records})


CASES = (collection, generator, files, append_log)


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_contract(check: SourceCheck, make: type, tmp_path: Path) -> None:
    check(make(tmp_path))
