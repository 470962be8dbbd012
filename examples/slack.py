"""What slack buys: windows of 5 seconds over the same disordered input, once with a slack of 10 seconds, once with 2.

Slack is how far records may be out of order. With much of it every record finds its window open, and results come late. With
little of it results come soon, and records that are further behind come too late for their window.

python examples/slack.py
"""

from typing import Any

from penstock import CollectSink, DataStream, OutputTag, StreamEnvironment, TumblingWindows, Watermarks, count

ARRIVALS = [1, 3, 2, 7, 4, 6, 12, 9, 3, 14, 8, 16, 11, 19, 13, 22]
"""Seconds of event time, in order of arrival."""

LATE: OutputTag[int] = OutputTag("late")


def build(env: StreamEnvironment, slack: int) -> tuple[DataStream[dict[str, Any]], DataStream[int]]:
    watermarks: Watermarks[int] = Watermarks.bounded(seconds=slack, timestamp=lambda second: second * 1000, every=1)
    stream = env.from_collection(ARRIVALS, watermarks=watermarks, name=f"arrivals-{slack}")
    counts = stream.window_all(TumblingWindows(seconds=5), late=LATE).aggregate(count(), name=f"counts-{slack}")
    return counts, counts.side_output(LATE)


def main() -> None:
    env = StreamEnvironment("slack")
    sinks = {slack: (CollectSink(), CollectSink()) for slack in (10, 2)}
    for slack, (kept, left) in sinks.items():
        counts, late = build(env, slack)
        counts.sink_to(kept)
        late.sink_to(left)
    env.execute()
    for slack, (kept, left) in sinks.items():
        shown = ", ".join(
            f"{row['window_start'] // 1000}-{row['window_end'] // 1000} s: {row['count']}" for row in kept.results()
        )
        print(f"slack of {slack} s: {shown}; too late: {list(left.results())}")


if __name__ == "__main__":
    main()
