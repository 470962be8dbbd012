"""The average temperature of each room, hour by hour.

Declared aggregates (`avg`, `count`, `max` of a field): readings are averaged a batch at a time, before they are sent to where
their room is kept. `penstock explain examples/room_temperatures.py` shows it as the step's path.

python examples/room_temperatures.py
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from penstock import DataStream, StreamEnvironment, TumblingWindows, Watermarks, aggregates, avg, count


@dataclass(frozen=True)
class Reading:
    room: str
    time: datetime
    celsius: float


def build(env: StreamEnvironment, readings: list[Reading]) -> DataStream[dict[str, Any]]:
    stream = env.from_collection(readings, watermarks=Watermarks.bounded(seconds=60, timestamp="time"), name="readings")
    hours = stream.key_by("room").window(TumblingWindows(hours=1))
    return hours.aggregate(count(), mean=avg("celsius"), warmest=aggregates.max("celsius"), name="hourly")


def readings() -> list[Reading]:
    """Every ten minutes of a morning; somebody heats the study from half past nine."""
    found = []
    for minute in range(0, 180, 10):
        time = datetime(2026, 1, 1, 8 + minute // 60, minute % 60, tzinfo=UTC)
        found += [Reading("study", time, 16.0 if minute < 90 else 22.0), Reading("kitchen", time, 20.0 + minute % 60 / 10)]
    return found


def main() -> None:
    env = StreamEnvironment("room-temperatures")
    rows = build(env, readings()).execute_and_collect()
    for row in sorted(rows, key=lambda row: (row["room"], row["window_start"])):
        hour = datetime.fromtimestamp(row["window_start"] / 1000, UTC)
        print(f"{row['room']:8} {hour:%H:%M}  {row['mean']:.1f} on average of {row['count']}, {row['warmest']:.1f} at most")


if __name__ == "__main__":
    main()
