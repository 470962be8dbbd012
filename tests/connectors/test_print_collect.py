from __future__ import annotations

import pickle
import threading
import uuid
from pathlib import Path

import cloudpickle
import pytest

from penstock.connectors.collecting import CollectSink
from penstock.connectors.printing import PrintSink
from penstock.errors import ConfigError
from penstock.ids import Epoch, JobId
from penstock.storage import LocalStorage, Storage
from tests.connectors.sinking import committer, stage


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return LocalStorage(tmp_path)


@pytest.fixture
def job() -> JobId:
    return JobId(uuid.uuid4().hex)


def test_prints_an_epoch_once(storage: Storage, job: JobId, capsys: pytest.CaptureFixture[str]) -> None:
    sink = PrintSink("rooms")
    prepared = [stage(sink, storage, 1, [1, 2]), stage(sink, storage, 1, ["a"], partition=1)]
    committer(sink, storage, job).commit(Epoch(1), prepared)
    committer(sink, storage, job).commit(Epoch(1), prepared)
    assert capsys.readouterr().out == "rooms> 1\nrooms> 2\nrooms> a\n"


def test_prints_up_to_a_limit(storage: Storage, job: JobId, capsys: pytest.CaptureFixture[str]) -> None:
    sink = PrintSink(limit=3)
    prepared = [stage(sink, storage, 1, range(100)), stage(sink, storage, 1, range(5), partition=1)]
    committer(sink, storage, job).commit(Epoch(1), prepared)
    assert capsys.readouterr().out == "0\n1\n2\n… and 102 more\n"


def test_a_limit_must_make_sense() -> None:
    with pytest.raises(ConfigError):
        PrintSink(limit=-1)


def test_collects_committed_epochs_once(storage: Storage, job: JobId) -> None:
    sink = CollectSink()
    travelled = pickle.loads(pickle.dumps(sink))
    first, second = stage(travelled, storage, 1, [1, 2]), stage(travelled, storage, 2, [3])
    assert sink.results() == []
    committer(sink, storage, job).commit(Epoch(1), [first])
    committer(sink, storage, job).commit(Epoch(1), [first])
    committer(sink, storage, job).commit(Epoch(2), [second])
    assert sink.results() == [1, 2, 3] == travelled.results()
    sink.discard()
    assert sink.results() == []


def test_collects_what_only_cloudpickle_can_carry(storage: Storage, job: JobId) -> None:
    sink = CollectSink()
    committer(sink, storage, job).commit(Epoch(1), [stage(sink, storage, 1, [lambda: 7])])
    assert sink.results()[0]() == 7


def test_iterates_while_the_job_runs(storage: Storage, job: JobId) -> None:
    sink = CollectSink()
    seen: list[int] = []
    driver = committer(sink, storage, job)
    reader = threading.Thread(target=lambda: seen.extend(sink.collected))
    reader.start()
    driver.commit(Epoch(1), [stage(sink, storage, 1, [1, 2])])
    assert sink.collected.wait(2, timeout=60)
    driver.commit(Epoch(2), [stage(sink, storage, 2, [3])])
    driver.close()
    reader.join(timeout=60)
    assert seen == [1, 2, 3]


def test_definitions_are_volatile_and_picklable() -> None:
    for sink in (PrintSink("x", limit=2), CollectSink()):
        assert sink.volatile
        assert sink.describe()
        assert cloudpickle.loads(cloudpickle.dumps(sink)) == sink
