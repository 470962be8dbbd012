"""Count the events of a million keys, hour by hour.

The source is vectorised and the aggregates are declared, so there is no Python object for an event: batches are counted by key
and hour as columns, sent on, and added up as columns. The counts are windowed once more, over all keys: the time of a window's
result is its last moment, so windows chain.

python examples/million_keys.py
"""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from penstock import DataStream, GeneratorSource, StreamEnvironment, TumblingWindows, Watermarks, aggregates, count

KEYS, PER_HOUR, HOURS = 1_000_000, 1_500_000, 2
HOUR_MS = 3_600_000


def events(numbers: Any) -> pa.RecordBatch:
    """Each hour every key has an event, and half of them a second one."""
    keys = numbers % PER_HOUR * 7919 % KEYS
    return pa.record_batch({"key": pa.array(keys), "time": pa.array(numbers * HOUR_MS // PER_HOUR)})


def build(env: StreamEnvironment) -> DataStream[dict[str, Any]]:
    source = GeneratorSource(events, count=HOURS * PER_HOUR, vectorised=True, batch_size=100_000)
    stream = env.from_source(source, watermarks=Watermarks.monotonous(timestamp="time"), name="events")
    hour = TumblingWindows(hours=1)
    counts = stream.key_by("key").window(hour).aggregate(count(), name="counts")
    return counts.window_all(hour).aggregate(
        keys=count(), events=aggregates.sum("count"), most=aggregates.max("count"), name="summary"
    )


def main() -> None:
    # Two large epochs: what opens and closes within one leaves no trace in state.
    env = StreamEnvironment("million-keys", first_records_per_epoch=2_000_000, max_records_per_epoch=2_000_000)
    for row in build(env).execute_and_collect():
        hour = datetime.fromtimestamp(row["window_start"] / 1000, UTC)
        print(f"{hour:%H:%M}: {row['keys']:,} keys, {row['events']:,} events, at most {row['most']} of a key")


if __name__ == "__main__":
    main()
