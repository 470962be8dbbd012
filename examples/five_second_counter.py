"""How many events come in five seconds, by the clock on the wall.

Processing time: a window is emitted when the clock passes its end, also when no further event comes. Which window an event is in
depends on when it is processed, so no two runs are alike; but each event is in one.

python examples/five_second_counter.py
"""

from datetime import UTC, datetime
from typing import Any

from penstock import DataStream, GeneratorSource, StreamEnvironment, TumblingWindows, count

EVENTS, PER_SECOND = 300, 50


def build(env: StreamEnvironment) -> DataStream[dict[str, Any]]:
    clicks = env.from_source(GeneratorSource(lambda n: n, count=EVENTS, rate=PER_SECOND), name="clicks")
    return clicks.window_all(TumblingWindows(seconds=5, time="processing")).aggregate(count(), name="counter")


def main() -> None:
    env = StreamEnvironment("five-second-counter")
    rows = build(env).execute_and_collect()
    for row in rows:
        start = datetime.fromtimestamp(row["window_start"] / 1000, UTC)
        print(f"five seconds from {start:%H:%M:%S}: {row['count']} events")
    print(f"{sum(row['count'] for row in rows)} events in all, {len(rows) >= 2 and 'in several windows'}")


if __name__ == "__main__":
    main()
