"""Impressions and clicks of tweets, hour by hour, asked for while they are counted.

The hour that is open is in the job's state, those that are over are in its file sink. One call gives both, of one epoch: the sums
are those of all events that the epoch has read, with nothing missing and nothing twice.

python examples/query_tweets.py            # a million tweets: TWEETS=1000000 python examples/query_tweets.py
"""

import os
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import DataStream, FileSink, GeneratorSource, StreamEnvironment, TumblingWindows, Watermarks
from penstock import aggregates as agg
from penstock.query import Closed, EmbeddedReader

TWEETS = int(os.environ.get("TWEETS", "20000"))
PER_HOUR, HOURS = 2 * TWEETS, 3
HOUR_MS = 3_600_000


def events(numbers: Any) -> pa.RecordBatch:
    """Each hour every tweet is seen twice, and every third of them is clicked once."""
    numbers = np.asarray(numbers)
    tweets = numbers % TWEETS
    clicked = (tweets % 3 == 0) & (numbers // TWEETS % 2 == 0)
    times = numbers * HOUR_MS // PER_HOUR
    ones = np.ones(len(numbers), dtype=np.int64)
    return pa.record_batch({"tweet": tweets, "impressions": ones, "clicks": ones * clicked, "time": times})


def build(env: StreamEnvironment, output: str) -> DataStream[dict[str, Any]]:
    source = GeneratorSource(events, count=HOURS * PER_HOUR, vectorised=True, batch_size=50_000)
    stream = env.from_source(source, watermarks=Watermarks.monotonous(timestamp="time"), name="events")
    hourly = (
        stream.key_by("tweet")
        .window(TumblingWindows(hours=1))
        .aggregate(impressions=agg.sum("impressions"), clicks=agg.sum("clicks"), name="hourly")
    )
    hourly.sink_to(FileSink(output, format="parquet"), name="out")
    return hourly


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage, output = f"{folder}/job", f"{folder}/hourly"
        env = StreamEnvironment("tweets", executor="inline", parallelism=2, storage=storage, max_records_per_epoch=PER_HOUR // 4)
        build(env, output)
        seen: list[tuple[int, int]] = []

        def ask(record: object) -> None:
            """After each epoch, from the process that the job runs in; any other could do the same."""
            with EmbeddedReader(storage) as reader:
                found = reader.windows("hourly", "slices", 3, Closed(folder=output, key="tweet"))
                seen.append((len(found.value), sum(total(window.value, "impressions") for window in found.value)))

        env.execute(listener=ask, until_idle=True)
        with EmbeddedReader(storage) as reader:
            for window in reader.windows("hourly", "slices", 3, Closed(folder=output, key="tweet")).value:
                impressions, clicks = total(window.value, "impressions"), total(window.value, "clicks")
                print(f"until {window.end // HOUR_MS:02}:00 tweet 3 was seen {impressions} times and clicked {clicks} times")
        assert seen == sorted(seen)
        assert len({hours for hours, _ in seen}) > 1


def total(row: dict[str, Any], name: str) -> int:
    """In a row of the sink a column has the name that was given; in state it has what it is an aggregate of."""
    return int(next(value for column, value in row.items() if name in column))


if __name__ == "__main__":
    main()
