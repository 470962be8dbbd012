"""Fire detection with event-time timers.

A jump of more than 20 degrees between two readings of a room arms a timer. Unless the room cools down within a minute, by the
clock of the readings, the timer raises an alert. It makes no difference when, or in how many epochs, the readings are processed.

python examples/fire_alarm.py
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock import DataStream, KeyedContext, KeyedProcessFunction, OnTimerContext, StreamEnvironment, ValueState, Watermarks


@dataclass(frozen=True)
class Reading:
    room: str
    time: int
    """Milliseconds, as all times of Penstock."""
    temperature: float


@dataclass(frozen=True)
class Alert:
    room: str
    time: int


class FireAlarm(KeyedProcessFunction[str, Reading, Alert]):
    last: ValueState[float | None] = ValueState(float)
    normal: ValueState[float | None] = ValueState(float)
    due: ValueState[int | None] = ValueState(int)

    def process(self, value: Reading, ctx: KeyedContext[str]) -> None:
        last, due, normal = self.last.value, self.due.value, self.normal.value
        if due is None and last is not None and value.temperature - last > 20:
            ctx.timers.register_event_time(value.time + 60_000)
            self.due.update(value.time + 60_000)
            self.normal.update(last)
        elif due is not None and normal is not None and value.temperature <= normal + 5:
            ctx.timers.delete_event_time(due)
            self.due.clear()
        self.last.update(value.temperature)

    def on_timer(self, timestamp: int, ctx: OnTimerContext[str]) -> Iterator[Alert]:
        self.due.clear()
        yield Alert(ctx.key, timestamp)


def build(env: StreamEnvironment, readings: list[Reading]) -> DataStream[Alert]:
    watermarks: Watermarks[Reading] = Watermarks.bounded(seconds=5, timestamp=lambda reading: reading.time)
    stream = env.from_collection(readings, watermarks=watermarks, name="readings")
    return stream.key_by("room").process(FireAlarm(), name="fire-alarm")


def readings() -> list[Reading]:
    """Ten minutes, a reading every 10 s: the kitchen burns, in the bathroom somebody takes a short hot shower."""
    start = 1_767_225_600_000  # 2026-01-01
    found = []
    for second in range(0, 600, 10):
        time = start + second * 1000
        found += [
            Reading("kitchen", time, 21.0 if second < 200 else 75.0),
            Reading("bathroom", time, 52.0 if 300 <= second < 340 else 22.0),
            Reading("attic", time, 15.0),
        ]
    return found


def main() -> None:
    env = StreamEnvironment("fire-alarm")
    for alert in build(env, readings()).execute_and_collect():
        print(f"fire in the {alert.room} at {datetime.fromtimestamp(alert.time / 1000, UTC):%H:%M:%S}")


if __name__ == "__main__":
    main()
