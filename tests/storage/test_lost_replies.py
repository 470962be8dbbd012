"""Replies of an object store that are lost after the request took effect: only what is ours is recognised as ours."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import obstore
import pytest
from obstore import exceptions

from penstock import FileSink, GeneratorSource, StreamEnvironment
from penstock.config import NO_RESTART
from penstock.connectors.files.reading.published import read_rows
from penstock.errors import AlreadyExistsError
from penstock.storage import Storage, object_store, open_storage
from tests.storage.contract import BIG, paths
from tests.storage.losing import LosesReplies, losing_server
from tests.storage.test_s3 import credentials

__all__ = ["credentials"]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, LosesReplies]]:
    with losing_server(seed=11) as running:
        yield running


@pytest.fixture
def place(server: tuple[str, LosesReplies], credentials: None) -> Iterator[str]:
    endpoint, losing = server
    losing.share = 0.0
    name = f"penstock-{uuid.uuid4()}"
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=name)
    losing.lost.clear()
    yield f"s3://{name}/place?endpoint={endpoint}"
    losing.share = 0.0


def test_a_job_goes_on_without_a_restart_though_every_tenth_reply_is_lost(
    tmp_path: Path, server: tuple[str, LosesReplies], place: str
) -> None:
    losing = server[1]
    root = place.partition("?")
    storage, out = (f"{root[0]}/{name}?{root[2]}" for name in ("job", "out"))
    env = StreamEnvironment(
        "lossy",
        executor="inline",
        parallelism=2,
        storage=storage,
        local_dir=str(tmp_path / "local"),
        max_records_per_epoch=10,
        first_records_per_epoch=10,
        keep=2,
        compact_after=2,
        restart=NO_RESTART,
    )
    numbers = env.from_source(GeneratorSource(int, count=60, partitions=1), name="numbers")
    numbers.key_by(lambda n: n % 7).sum(name="sums").sink_to(FileSink(out, format="json"), name="out")
    losing.share = 0.1
    result = env.execute()
    lost, losing.share = list(losing.lost), 0.0
    assert result.finished
    assert result.restarts == 0
    totals = dict.fromkeys(range(7), 0)
    expected = []
    for number in range(60):
        totals[number % 7] += number
        expected.append(totals[number % 7])
    assert sorted(row["value"] for row in read_rows(out)) == sorted(expected)
    assert sum(line.startswith("PUT") for line in lost) >= 3, lost


def test_objects_whose_replies_are_lost_are_ours(server: tuple[str, LosesReplies], place: str) -> None:
    losing = server[1]
    storage = open_storage(place)
    losing.share = 0.4
    created = 0
    for number in range(25):
        storage.create(f"a/{number}", b"")  # nothing in it says whose it is
        created += 1
    losing.share = 0.0
    assert created == 25
    assert len(paths(storage)) == 25
    assert sum(line.startswith("PUT") for line in losing.lost) >= 5


def test_an_object_of_the_same_content_is_another_s(server: tuple[str, LosesReplies], place: str) -> None:
    losing = server[1]
    storage = open_storage(place)
    for number in range(8):
        storage.create(f"a/{number}", b"same")
    losing.share = 0.4
    for number in range(8):
        with pytest.raises(AlreadyExistsError):
            storage.create(f"a/{number}", b"same")


def test_large_objects(server: tuple[str, LosesReplies], place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    losing = server[1]
    monkeypatch.setattr(object_store, "ONE_PUT_BYTES", 1 << 20)
    storage = open_storage(place)
    copy, replies = obstore.copy, ["lost", "came"]

    def copied(*args: object, **options: object) -> None:
        copy(*args, **options)  # type: ignore[arg-type]
        if replies.pop(0) == "lost":
            raise exceptions.GenericError("error sending request")

    monkeypatch.setattr(obstore, "copy", copied)
    with storage.writer("base/1") as file:
        file.write(BIG * 3)
    assert storage.read("base/1") == BIG * 3
    with pytest.raises(AlreadyExistsError), storage.writer("base/1") as file:
        file.write(BIG * 2 + b"other" + BIG[5:])
    assert storage.read("base/1") == BIG * 3
    assert losing.lost == []


def test_deleting(server: tuple[str, LosesReplies], place: str) -> None:
    losing = server[1]
    storage: Storage = open_storage(place)
    for number in range(10):
        storage.create(f"a/{number}", b"")
    losing.share = 0.3
    for number in range(10):
        storage.delete([f"a/{number}"])
    losing.share = 0.0
    assert paths(storage) == []
