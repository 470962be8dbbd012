from __future__ import annotations

import json
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.protocol import Limits, Planned
from penstock.connectors.spark_feed import ledger
from penstock.connectors.spark_feed.handover import Handover, Offer
from penstock.connectors.spark_feed.source import DataFrameSource, SparkStreamSource
from penstock.diagnosis.failures import nature_of
from penstock.errors import ConfigError, SourceError
from penstock.records import Columns
from tests.connectors.driving import PLENTY, Drive, context

pytestmark = pytest.mark.spark

SCHEMA = "word string, n long"


@dataclass(frozen=True)
class Word:
    word: str
    n: int


@pytest.fixture(autouse=True, scope="module")
def _quiet(spark: Any) -> Iterator[None]:
    """Queries are made to fail here: Spark would log each."""
    spark.sparkContext.setLogLevel("OFF")
    yield
    spark.sparkContext.setLogLevel("ERROR")


class Feed:
    """A folder of JSON files that Spark watches, and the job that reads them."""

    def __init__(self, spark: Any, folder: Path, **options: Any) -> None:
        self.inbox = folder / "inbox"
        self.inbox.mkdir()
        self.count = 0
        frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(self.inbox))
        self.frame = frame
        where = context(folder / "job", spark=lambda: spark)
        self.drive = Drive(SparkStreamSource.of(frame, **options), where)

    def put(self, *words: str) -> None:
        rows = [json.dumps({"word": word, "n": i}) for i, word in enumerate(words)]
        hidden = self.inbox / f".{self.count}.json"
        hidden.write_text("\n".join(rows) + "\n" if rows else "")
        os.utime(hidden, (1_000 + self.count, 1_000 + self.count))
        hidden.rename(self.inbox / f"{self.count}.json")
        self.count += 1

    def next(self, seconds: float = 60) -> Planned:
        """The next plan that has something to read."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            planned = self.drive.plan()
            if planned.splits:
                return planned
            time.sleep(0.05)
        raise AssertionError("nothing came")

    @property
    def words(self) -> list[str]:
        return [row["word"] if isinstance(row, dict) else row.word for row in self.drive.all]


@pytest.fixture
def feed(spark: Any, tmp_path: Path) -> Iterator[Callable[..., Feed]]:
    made: list[Feed] = []

    def make(**options: Any) -> Feed:
        made.append(Feed(spark, tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.drive.enumerator.close()


def test_batches_come_one_by_one_in_order(feed: Callable[..., Feed]) -> None:
    f = feed(record=Word)
    f.put("a", "b")
    f.put("c")
    first = f.next()
    assert f.drive.plan().splits == first.splits, "until it is committed it is the same batch"
    f.drive.commit(first)
    f.drive.commit(f.next())
    f.put("d")
    f.drive.commit(f.next())
    assert f.words == ["a", "b", "c", "d"]
    assert f.drive.all[0] == Word("a", 0)
    assert all(isinstance(batch, Columns) for batch in f.drive.batches)
    assert f.drive.position["batch"] == 2
    assert not f.drive.plan().splits


def test_a_crash_before_our_commit_gives_the_batch_again(feed: Callable[..., Feed]) -> None:
    f = feed()
    for word in "abc":
        f.put(word)
    f.drive.commit(f.next())
    lost = f.next()
    f.drive.crash()
    again = f.next()
    assert again.position == lost.position
    f.drive.commit(again)
    f.drive.commit(f.next())
    assert f.words == ["a", "b", "c"]


def test_a_crash_between_our_commit_and_sparks(feed: Callable[..., Feed]) -> None:
    f = feed()
    f.put("a")
    f.put("b")
    planned = f.next()
    for partition, values in f.drive.values(planned):
        f.drive.read[partition] += values
    f.drive.position = json.loads(json.dumps(planned.position))  # in the manifest, but `committed` was never called
    f.drive.crash()
    f.drive.commit(f.next())
    assert f.words == ["a", "b"]
    assert f.drive.position["batch"] == 1


def test_batches_without_rows_are_accounted_for(feed: Callable[..., Feed]) -> None:
    f = feed()
    f.drive.source = SparkStreamSource.of(f.frame.where("word <> 'nothing'"))
    f.drive.crash()
    f.put("a")
    f.drive.commit(f.next())
    f.put("nothing")
    f.put("nothing")
    f.put("b")
    lost = f.next()
    assert lost.position["batch"] == 3
    f.drive.crash()
    f.drive.commit(f.next())
    assert f.words == ["a", "b"]


def test_a_lost_checkpoint_is_refused(feed: Callable[..., Feed], tmp_path: Path) -> None:
    f = feed()
    f.put("a")
    f.drive.commit(f.next())
    f.drive.enumerator.close()
    (tmp_path / "job/feeds/in/checkpoint").rename(tmp_path / "away")
    f.drive.crash()
    with pytest.raises(SourceError, match="do not belong together") as caught:
        f.next()
    assert "checkpoint:" in caught.value.detail
    assert "under another name" in caught.value.hint


def test_a_position_of_long_ago_is_refused(feed: Callable[..., Feed]) -> None:
    f = feed()
    for word in "abc":
        f.put(word)
    f.drive.commit(f.next())
    old = f.drive.position
    f.drive.commit(f.next())
    f.next()  # by now Spark has committed the second batch as well
    f.drive.position = old
    f.drive.crash()
    with pytest.raises(SourceError, match="do not belong together"):
        f.next()


def test_a_query_that_fails(feed: Callable[..., Feed]) -> None:
    f = feed()
    f.drive.source = SparkStreamSource.of(f.frame.selectExpr("raise_error(concat('bad ', word)) as word", "n"))
    f.drive.crash()
    f.put("apple")
    with pytest.raises(SourceError, match="has failed") as caught:
        f.next()
    assert "bad apple" in str(caught.value)


def test_a_query_that_failed_is_started_anew(feed: Callable[..., Feed], tmp_path: Path) -> None:
    f = feed()
    f.put("a")
    planned = f.next()
    f.drive.commit(planned)
    switch = tmp_path / "broken"
    switch.mkdir()
    f.drive.enumerator.close()
    f.drive.source = SparkStreamSource.of(f.frame.mapInPandas(_fail_while(str(switch)), SCHEMA))
    f.drive.crash()
    f.put("b")
    with pytest.raises(SourceError, match="has failed"):
        f.next()
    switch.rmdir()
    f.drive.commit(f.next())  # the same enumerator: the loop tries again without making another
    assert f.words == ["a", "b"]


def _fail_while(path: str) -> Callable[[Any], Any]:
    def task(batches: Any) -> Any:
        for batch in batches:
            if os.path.exists(path):
                raise OSError("broken")
            yield batch

    return task


def test_closing_while_a_batch_waits(feed: Callable[..., Feed]) -> None:
    f = feed()
    f.put("a")
    f.next()
    f.drive.enumerator.close()
    assert not any(thread.name == "penstock-feed-stop" for thread in threading.enumerate())


def test_old_batches_are_removed(feed: Callable[..., Feed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "KEPT_BATCHES", 2)
    f = feed()
    for word in "abcd":
        f.put(word)
        f.drive.commit(f.next())
    query = f.drive.position["query"]
    left = {p.parent.parent.name for p in (tmp_path / "job/feeds/in" / query).glob("*/*/*.parquet")}
    assert left == {"0000000002", "0000000003"}


def test_by_format(spark: Any, tmp_path: Path) -> None:
    source = SparkStreamSource("rate-micro-batch", {"rowsPerBatch": 10, "numPartitions": 2})
    d = Drive(source, context(tmp_path / "job", spark=lambda: spark))
    try:
        for _ in range(2):
            while not (planned := d.plan()).splits:
                time.sleep(0.05)
            d.commit(planned)
    finally:
        d.enumerator.close()
    assert sorted(row["value"] for row in d.all) == list(range(20))
    assert set(d.read) == {"0", "1"}


def test_a_format_that_does_not_exist(spark: Any, tmp_path: Path) -> None:
    d = Drive(SparkStreamSource("no-such-format"), context(tmp_path, spark=lambda: spark))
    with pytest.raises(SourceError, match="cannot read the format") as caught:
        d.plan()
    assert "no-such-format" in caught.value.detail


@pytest.mark.parametrize("by", ["format", "frame"])
def test_a_file_feed_whose_path_changed(spark: Any, tmp_path: Path, by: str) -> None:
    """One error that names both places, before a query is started; it is no use to try again."""

    def source(inbox: Path) -> SparkStreamSource:
        if by == "format":
            return SparkStreamSource("json", {"path": str(inbox)}, SCHEMA)
        return SparkStreamSource.of(spark.readStream.schema(SCHEMA).json(str(inbox)))

    old, new = tmp_path / "an old inbox", tmp_path / "new"
    old.mkdir()
    new.mkdir()
    (old / "a.json").write_text('{"word": "a", "n": 1}\n')
    d = Drive(source(old), context(tmp_path / "job", spark=lambda: spark))
    try:
        while not (planned := d.plan()).splits:
            time.sleep(0.05)
        d.commit(planned)
        d.crash()
        d.plan()
        d.enumerator.close()
        (old / "a.json").rename(new / "a.json")
        d.source = source(new)
        d.crash()
        with pytest.raises(ConfigError) as caught:
            d.plan()
    finally:
        d.enumerator.close()
    assert caught.value.what == f"the source 'in' reads {new}, and has read {old} until now"
    assert nature_of(caught.value) == "configuration"
    assert "another name" in caught.value.hint
    assert "java" not in str(caught.value).lower()


def test_a_file_feed_whose_path_is_missing(spark: Any, tmp_path: Path) -> None:
    d = Drive(SparkStreamSource("json", {"path": str(tmp_path / "gone")}, SCHEMA), context(tmp_path / "job", spark=lambda: spark))
    with pytest.raises(ConfigError) as caught:
        d.plan()
    assert str(caught.value) == (
        f"the source 'in' reads {tmp_path}/gone, which does not exist\n  hint: make the folder, or give the source the right path"
    )


def test_a_batch_data_frame(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(0, 1000, 1, 3).selectExpr("cast(id as string) as word", "id as n")
    d = Drive(DataFrameSource(frame, record=Word, batch_size=100), context(tmp_path, spark=lambda: spark))
    d.run([Limits(records=n, bytes=1 << 30) for n in (1, 7, 300)], [False, True, False, True])
    assert sorted(row.n for row in d.all) == list(range(1000))
    assert set(d.read) == {"0", "1"}
    again = Drive(DataFrameSource(spark.range(3), record=Word), context(tmp_path, spark=lambda: spark))
    again.run()
    assert len(again.all) == 1000, "what an earlier run of the job has written is used"


def test_an_unordered_data_frame_is_read_by_all(spark: Any, tmp_path: Path) -> None:
    d = Drive(DataFrameSource(spark.range(0, 100, 1, 1)), context(tmp_path, ordering="none"))
    planned = d.plan(Limits(records=1 << 30, bytes=1 << 30, readers=4))
    assert [split.records for split in planned.splits] == [25] * 4
    d.commit(planned)
    assert sorted(row["id"] for row in d.all) == list(range(100))


def test_an_empty_data_frame(spark: Any, tmp_path: Path) -> None:
    d = Drive(DataFrameSource(spark.range(0)), context(tmp_path))
    assert d.step(PLENTY).exhausted
    d.crash()
    assert d.step(PLENTY).exhausted


def test_a_data_frame_that_cannot_be_computed(spark: Any, tmp_path: Path) -> None:
    d = Drive(DataFrameSource(spark.range(1).selectExpr("raise_error('spoilt')")), context(tmp_path))
    with pytest.raises(SourceError, match="cannot be computed") as caught:
        d.plan()
    assert "spoilt" in caught.value.detail


def test_definitions_travel_without_the_frame(spark: Any) -> None:
    source = DataFrameSource(spark.range(1))
    assert pickle.loads(pickle.dumps(source)) == source
    assert b"pyspark" not in pickle.dumps(source)


def test_what_makes_no_sense_is_refused(spark: Any) -> None:
    streaming = spark.readStream.format("rate").load()
    for make in (
        lambda: SparkStreamSource(),
        lambda: SparkStreamSource.of(spark.range(1)),
        lambda: DataFrameSource(streaming),
        lambda: DataFrameSource(3),
        lambda: DataFrameSource(spark.range(1), batch_size=0),
    ):
        with pytest.raises(ConfigError) as caught:
            make()
        assert caught.value.hint


def test_a_feed_needs_spark(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="runs on Spark"):
        Drive(SparkStreamSource("rate"), context(tmp_path)).plan()


def test_handing_over() -> None:
    handover = Handover()
    answers: list[bool] = []
    for number in (0, 1):
        thread = threading.Thread(target=lambda n=number: answers.append(handover.offer(Offer(n, []))))
        thread.start()
        while (offer := handover.current()) is None or offer.number != number:
            time.sleep(0.001)
        if number == 0:
            handover.settle(0)
        else:
            handover.close()
        thread.join(5)
    assert answers == [True, False]
    assert handover.offer(Offer(0, [])), "what is settled already need not wait"
