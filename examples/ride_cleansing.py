"""Taxi rides that begin and end in New York, of all that are reported: a filter.

The first exercise of Apache Flink's training, with data of our own; the others are `rides_and_fares`, `hourly_tips` and
`long_ride_alerts`.

python examples/ride_cleansing.py
"""

from dataclasses import dataclass

from penstock import DataStream, StreamEnvironment

WEST, EAST, SOUTH, NORTH = -74.05, -73.7, 40.5, 41.0


@dataclass(frozen=True)
class TaxiRide:
    """A ride begins or ends. At its start nobody knows where it ends: these are the places that were asked for."""

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


def in_new_york(lon: float, lat: float) -> bool:
    return WEST <= lon <= EAST and SOUTH <= lat <= NORTH


def within_new_york(ride: TaxiRide) -> bool:
    return in_new_york(ride.start_lon, ride.start_lat) and in_new_york(ride.end_lon, ride.end_lat)


def build(rides: DataStream[TaxiRide]) -> DataStream[TaxiRide]:
    return rides.filter(within_new_york, name="cleansed")


def rides() -> list[TaxiRide]:
    """To Times Square, from three places and a GPS without a signal."""
    starts = {"JFK": (-73.7781, 40.6413), "Newark": (-74.1745, 40.6895), "Bronx": (-73.8648, 40.8448), "nowhere": (0.0, 0.0)}
    return [
        TaxiRide(number, True, 1_767_225_600_000, lon, lat, -73.9855, 40.7580, 1, 2000 + number, 3000 + number)
        for number, (lon, lat) in enumerate(starts.values(), 1)
    ]


def main() -> None:
    env = StreamEnvironment("ride-cleansing")
    for ride in build(env.from_collection(rides(), name="rides")).execute_and_collect():
        print(f"ride {ride.ride_id} of taxi {ride.taxi_id} stays in New York")


if __name__ == "__main__":
    main()
