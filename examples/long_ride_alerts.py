"""Taxi rides of more than two hours, as soon as they are known to be: state and an event-time timer for each ride.

A ride that has not ended two hours after its start is reported by a timer. Start and end may be reported in either order, and a
ride that is known to be long at its second event is reported then.

python examples/long_ride_alerts.py
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock import DataStream, KeyedContext, KeyedProcessFunction, OnTimerContext, StreamEnvironment, ValueState, Watermarks

TWO_HOURS = 2 * 60 * 60 * 1000


@dataclass(frozen=True)
class TaxiRide:
    ride_id: int
    is_start: bool
    event_time: int
    start_lon: float
    start_lat: float
    end_lon: float
    end_lat: float
    passenger_cnt: int
    taxi_id: int
    driver_id: int


class LongRides(KeyedProcessFunction[int, TaxiRide, int]):
    first: ValueState[TaxiRide | None] = ValueState(TaxiRide)
    """The event that was reported first, until the other is, or the timer fires."""

    def process(self, value: TaxiRide, ctx: KeyedContext[int]) -> Iterator[int]:
        first = self.first.value
        if first is None:
            self.first.update(value)
            if value.is_start:
                ctx.timers.register_event_time(value.event_time + TWO_HOURS)
            return
        start, end = (value, first) if value.is_start else (first, value)
        ctx.timers.delete_event_time(start.event_time + TWO_HOURS)
        self.first.clear()
        if end.event_time - start.event_time > TWO_HOURS:
            yield ctx.key

    def on_timer(self, timestamp: int, ctx: OnTimerContext[int]) -> Iterator[int]:
        self.first.clear()
        yield ctx.key


def build(rides: DataStream[TaxiRide]) -> DataStream[int]:
    return rides.key_by(lambda ride: ride.ride_id).process(LongRides(), name="long-rides")


def rides() -> list[TaxiRide]:
    """Rides of a quarter of an hour up to four hours; of the last one no end is reported."""
    start = 1_767_225_600_000  # 2026-01-01
    found = []
    for number in range(1, 17):
        begun = start + number * 60_000
        times = [(True, begun), (False, begun + number * 900_000)][: 1 if number == 16 else 2]
        found += [TaxiRide(number, is_start, time, -73.98, 40.75, -73.98, 40.75, 1, number, number) for is_start, time in times]
    return sorted(found, key=lambda ride: ride.event_time)


def main() -> None:
    env = StreamEnvironment("long-ride-alerts")
    by_time: Watermarks[TaxiRide] = Watermarks.bounded(seconds=60, timestamp=lambda ride: ride.event_time)
    alerts = build(env.from_collection(rides(), watermarks=by_time, name="rides"))
    print(f"rides of more than two hours: {', '.join(map(str, sorted(alerts.execute_and_collect())))}")


if __name__ == "__main__":
    main()
