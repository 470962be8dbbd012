"""A door that opens is closed within 30 seconds; one that is not is a timed-out match."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock import OutputTag, Pattern, PatternFunction, StreamEnvironment, Watermarks, col
from penstock.cep import Match, PatternContext

Signal = dict[str, Any]

LEFT_OPEN = OutputTag[str]("left open")
SIGNALS = [
    {"door": "hall", "second": 0, "state": "open"},
    {"door": "cellar", "second": 5, "state": "open"},
    {"door": "hall", "second": 12, "state": "closed"},
    {"door": "cellar", "second": 60, "state": "closed"},
    {"door": "hall", "second": 70, "state": "open"},
]


class Doors(PatternFunction[Signal, str]):
    def process_match(self, match: Match[Signal], ctx: PatternContext) -> Iterator[str]:
        yield f"{ctx.key}: open for {match['closed'][0]['second'] - match['open'][0]['second']} s"

    def process_timed_out(self, match: Match[Signal], ctx: PatternContext) -> None:
        ctx.output(
            LEFT_OPEN, f"{ctx.key}: open since {match['open'][0]['second']} s, nobody closed it by {ctx.timestamp_ms // 1000} s"
        )


def main() -> None:
    env = StreamEnvironment("doors", executor="inline", parallelism=2)
    signals = env.from_collection(SIGNALS, watermarks=Watermarks.bounded(seconds=1, timestamp=lambda one: one["second"] * 1000))
    closed_in_time = (
        Pattern.begin("open").where(col("state") == "open").next("closed").where(col("state") == "closed").within(seconds=30)
    )
    doors = signals.key_by("door").pattern(closed_in_time).process(Doors(), name="doors")
    doors.print()
    doors.side_output(LEFT_OPEN).print("left open")
    env.execute()


if __name__ == "__main__":
    main()
