"""Streams that meet, to files: rides with their fares by a keyed co-process, and purchases with rules that are broadcast."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock import CollectionSource, FileSink, KeyedContext, StreamEnvironment, ValueState, Watermarks
from penstock.functions import KeyedCoProcessFunction
from tests.laws.broadcast_programs import points, random_shop

Ride = tuple[int, str, int]
Fare = tuple[int, int, int]

SHOP = random_shop(5, 90)
RIDES: list[Ride] = [(n * 37 % 90, f"taxi {n % 7}", 1000 + 10 * n) for n in range(90)]
FARES: list[Fare] = [(n * 53 % 90, n % 11, 1000 + 10 * n) for n in range(90)]


class Pairs(KeyedCoProcessFunction[int, Ride, Fare, tuple[int, str, int]]):
    ride: ValueState[str | None] = ValueState(str)
    fare: ValueState[int | None] = ValueState(int)

    def process1(self, value: Ride, ctx: KeyedContext[int]) -> Iterator[tuple[int, str, int]]:
        if self.fare.value is None:
            self.ride.update(value[1])
        else:
            yield ctx.key, value[1], self.fare.value
            self.fare.clear()

    def process2(self, value: Fare, ctx: KeyedContext[int]) -> Iterator[tuple[int, str, int]]:
        if self.ride.value is None:
            self.fare.update(value[1])
        else:
            yield ctx.key, self.ride.value, value[1]
            self.ride.clear()


def expected_pairs() -> list[list[Any]]:
    fares = {fare[0]: fare[1] for fare in FARES}
    return sorted([ride, taxi, fares[ride]] for ride, taxi, _ in RIDES)


def as_row(values: Any) -> dict[str, Any]:
    return {"row": list(values)}


def program(folder: Path, **settings: Any) -> StreamEnvironment:
    """The job, in `folder`: pairs go to `folder/pairs`, points to `folder/points`."""
    defaults: dict[str, Any] = {
        "storage": str(folder / "storage"),
        "parallelism": 2,
        "max_parallelism": 16,
        "max_records_per_epoch": 40,
        "keep": 3,
        "compact_after": 3,
        "local_dir": str(folder / "local"),
    }
    env = StreamEnvironment("met", **{**defaults, **settings})
    by_time: Watermarks[Any] = Watermarks.monotonous(timestamp=lambda record: record[-1])
    rides = env.from_source(CollectionSource(RIDES), watermarks=by_time, name="rides").key_by(0)
    fares = env.from_source(CollectionSource(FARES), watermarks=by_time, name="fares").key_by(0)
    pairs = rides.connect(fares).process(Pairs(), name="pairs")
    pairs.map(as_row).sink_to(FileSink(str(folder / "pairs"), format="json"), name="pairs-out")
    points(env, SHOP).map(as_row).sink_to(FileSink(str(folder / "points"), format="json"), name="points-out")
    return env


def main() -> None:
    network = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    print(program(Path(sys.argv[1]), master="local[2,4]", spark_config=network).execute().finished)


if __name__ == "__main__":
    main()
