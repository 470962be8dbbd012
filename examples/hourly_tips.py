"""Which taxi driver earns the most tips in each hour: windows of each driver, and over them a window of all drivers.

python examples/hourly_tips.py
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock import DataStream, StreamEnvironment, TumblingWindows, Watermarks, WindowFunction
from penstock.windows import WindowContext


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
class Tips:
    """`end`: of the hour, in milliseconds."""

    end: int
    driver_id: int
    tips: float


class InTheHour(WindowFunction[int, float, Tips]):
    """Says of which hour and driver a sum is."""

    def process(self, values: list[float], ctx: WindowContext[int]) -> Iterator[Tips]:
        for total in values:
            yield Tips(ctx.window.end, ctx.key, total)


def more(one: Tips, other: Tips) -> Tips:
    return max(one, other, key=lambda tips: tips.tips)


def build(fares: DataStream[TaxiFare]) -> DataStream[Tips]:
    hour = TumblingWindows(hours=1)
    of_each = fares.key_by(lambda fare: fare.driver_id).window(hour)
    sums = of_each.fold(0.0, lambda total, fare: total + fare.tip, process=InTheHour(), name="tips-by-driver")
    return sums.window_all(hour).reduce(more, name="most-tips")


def fares() -> list[TaxiFare]:
    """Of three drivers over three hours, with tips that go round."""
    start = 1_767_225_600_000  # 2026-01-01
    return [TaxiFare(n, n % 3, n % 3, start + n * 120_000, "CRD", float(n * 7 % 11), 0.0, 12.5) for n in range(90)]


def main() -> None:
    env = StreamEnvironment("hourly-tips")
    by_time: Watermarks[TaxiFare] = Watermarks.bounded(seconds=60, timestamp=lambda fare: fare.start_time)
    for best in build(env.from_collection(fares(), watermarks=by_time, name="fares")).execute_and_collect():
        print(
            f"until {datetime.fromtimestamp(best.end / 1000, UTC):%H:%M} driver {best.driver_id} got {best.tips:.2f} USD in tips"
        )


if __name__ == "__main__":
    main()
