"""An interval join over columns with both outer sides: what waits for a partner is stored, found, changed and dropped."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from penstock import FileSink, Watermarks
from tests.torture.jobs.arguments import arguments, finish
from tests.torture.oracle import PAIR_MS, left_event, right_event


def main() -> None:
    args = arguments()
    env = args.environment("pairs", max_records_per_epoch=args.size // 12)
    watermarks: Watermarks[Any] = Watermarks.bounded(seconds=0.05, timestamp="ts")
    left, right = (
        env.from_source(args.source(event, partitions=2, batch_size=200), watermarks=watermarks, name=name).key_by("key")
        for event, name in ((left_event, "left"), (right_event, "right"))
    )
    near = left.interval_join(right).between(timedelta(milliseconds=-PAIR_MS), timedelta(milliseconds=PAIR_MS)).full()
    near.select(left={"n": "left"}, right={"n": "right"}, name="pairs").sink_to(FileSink(args.out), name="out")
    finish(env.execute())


if __name__ == "__main__":
    main()
