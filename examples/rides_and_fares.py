"""Each taxi ride with its fare, whichever of the two is reported first: two streams connected by key, with state that both share.

python examples/rides_and_fares.py
"""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock import DataStream, KeyedContext, StreamEnvironment, ValueState, Watermarks
from penstock.functions import KeyedCoProcessFunction


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


@dataclass(frozen=True)
class TaxiFare:
    ride_id: int
    taxi_id: int
    driver_id: int
    start_time: int
    payment_type: str
    tip: float
    tolls: float
    total_fare: float


@dataclass(frozen=True)
class RideAndFare:
    ride: TaxiRide
    fare: TaxiFare


class Enrichment(KeyedCoProcessFunction[int, TaxiRide, TaxiFare, RideAndFare]):
    """What comes first waits in state for the other."""

    ride: ValueState[TaxiRide | None] = ValueState(TaxiRide)
    fare: ValueState[TaxiFare | None] = ValueState(TaxiFare)

    def process1(self, value: TaxiRide, ctx: KeyedContext[int]) -> Iterator[RideAndFare]:
        if not value.is_start:
            return
        fare = self.fare.value
        if fare is None:
            self.ride.update(value)
        else:
            self.fare.clear()
            yield RideAndFare(value, fare)

    def process2(self, value: TaxiFare, ctx: KeyedContext[int]) -> Iterator[RideAndFare]:
        ride = self.ride.value
        if ride is None:
            self.fare.update(value)
        else:
            self.ride.clear()
            yield RideAndFare(ride, value)


def build(rides: DataStream[TaxiRide], fares: DataStream[TaxiFare]) -> DataStream[RideAndFare]:
    both = rides.key_by(lambda ride: ride.ride_id).connect(fares.key_by(lambda fare: fare.ride_id))
    return both.process(Enrichment(), name="rides-and-fares")


START = 1_767_225_600_000  # 2026-01-01


def rides(count: int) -> list[TaxiRide]:
    """A ride begins every 30 s, and ends ten minutes later."""
    found = []
    for number in range(count):
        place = -73.98 + number / 10_000, 40.75
        begun = START + number * 30_000
        for is_start, time in ((True, begun), (False, begun + 600_000)):
            found.append(TaxiRide(number, is_start, time, *place, *place, 1 + number % 3, number % 7, number % 5))
    return sorted(found, key=lambda ride: ride.event_time)


def fares(count: int) -> list[TaxiFare]:
    """Those of every third ride are reported late, with the next one."""
    found = [
        TaxiFare(n, n % 7, n % 5, START + n * 30_000, "CSH" if n % 2 else "CRD", n % 4 / 2, 0.0, 10.0 + n) for n in range(count)
    ]
    return sorted(found, key=lambda fare: (fare.ride_id + (fare.ride_id % 3 == 0) * 1.5, fare.ride_id))


def main() -> None:
    env = StreamEnvironment("rides-and-fares")
    by_start: Watermarks[TaxiRide] = Watermarks.bounded(seconds=60, timestamp=lambda ride: ride.event_time)
    by_time: Watermarks[TaxiFare] = Watermarks.bounded(seconds=60, timestamp=lambda fare: fare.start_time)
    met = build(
        env.from_collection(rides(20), watermarks=by_start, name="rides"),
        env.from_collection(fares(20), watermarks=by_time, name="fares"),
    )
    pairs = met.execute_and_collect()
    print(f"{len(pairs)} rides with their fares, {sum(pair.fare.total_fare for pair in pairs):.2f} USD in all")


if __name__ == "__main__":
    main()
