"""What was sold in the last minute, every 20 seconds: sliding windows.

A sale is in three windows. It is added up once, in the slice of 20 seconds it belongs to; a window is three slices.

python examples/last_minute.py
"""

from typing import Any, NamedTuple

from penstock import DataStream, SlidingWindows, StreamEnvironment, Watermarks, aggregates


class Sale(NamedTuple):
    shop: str
    second: int
    cents: int


SALES = [
    Sale("centre", 5, 300),
    Sale("centre", 19, 200),
    Sale("harbour", 30, 1000),
    Sale("centre", 41, 150),
    Sale("centre", 95, 50),
    Sale("harbour", 96, 20),
]


def build(env: StreamEnvironment, sales: list[Sale]) -> DataStream[dict[str, Any]]:
    watermarks: Watermarks[Sale] = Watermarks.monotonous(timestamp=lambda sale: sale.second * 1000)
    stream = env.from_collection(sales, watermarks=watermarks, name="sales")
    return stream.key_by("shop").window(SlidingWindows(60, 20)).aggregate(cents=aggregates.sum("cents"), name="last-minute")


def main() -> None:
    env = StreamEnvironment("last-minute")
    rows = build(env, SALES).execute_and_collect()
    for row in sorted(rows, key=lambda row: (row["shop"], row["window_end"])):
        print(f"{row['shop']:8} at {row['window_end'] // 1000:3} s: {row['cents'] / 100:6.2f} in the last minute")


if __name__ == "__main__":
    main()
