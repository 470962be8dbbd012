"""Word count in windows of five seconds.

Lines come with the time at which they were said. A window is emitted when the watermark says that nothing more of it will come:
here 2 s after its end, by the clock of the lines.

python examples/window_word_count.py
"""

from typing import Any, NamedTuple

from penstock import DataStream, StreamEnvironment, TumblingWindows, Watermarks, count


class Line(NamedTuple):
    second: float
    text: str


LINES = [
    Line(0.5, "to be or not to be"),
    Line(2.0, "that is the question"),
    Line(6.1, "whether tis nobler in the mind to suffer"),
    Line(4.9, "to be"),  # a little late, and in time
    Line(8.0, "the slings and arrows of the outrageous fortune"),
    Line(12.0, "or to take arms"),
]


def build(env: StreamEnvironment, lines: list[Line]) -> DataStream[dict[str, Any]]:
    watermarks: Watermarks[Line] = Watermarks.bounded(seconds=2, timestamp=lambda line: round(line.second * 1000))
    words = env.from_collection(lines, watermarks=watermarks, name="lines").flat_map(lambda line: line.text.split())
    return words.key_by(str, key_type=str).window(TumblingWindows(seconds=5)).aggregate(count(), name="counts")


def main() -> None:
    env = StreamEnvironment("window-word-count")
    counts = build(env, LINES).execute_and_collect()
    for row in sorted(counts, key=lambda row: (row["window_start"], -row["count"], row["key"])):
        if row["count"] > 1:
            print(f"{row['window_start'] // 1000:2} s to {row['window_end'] // 1000:2} s: {row['count']} {row['key']}")


if __name__ == "__main__":
    main()
