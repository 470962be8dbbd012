"""Errors as a stream: records that a function raises on go to a stream of their own, and the job goes on.

python examples/dead_letters.py
"""

import json
from typing import Any

from penstock import DataStream, StreamEnvironment
from penstock.api import DeadLetter

LINES = [
    '{"sensor": "a", "celsius": 21.5}',
    '{"sensor": "b", "celsius": }',
    '{"sensor": "a", "celsius": 22.0}',
    '{"sensor": "c"}',
]


def parse(line: str) -> tuple[str, float]:
    reading: dict[str, Any] = json.loads(line)
    return reading["sensor"], float(reading["celsius"])


def build(env: StreamEnvironment, lines: list[str]) -> tuple[DataStream[tuple[str, float]], DataStream[DeadLetter]]:
    parsed = env.from_collection(lines, name="lines").map(parse, name="parse", errors="dead_letter")
    return parsed, parsed.dead_letters()


def main() -> None:
    env = StreamEnvironment("dead-letters")
    parsed, letters = build(env, LINES)
    parsed.print("reading")
    letters.map(lambda letter: f"{letter.error.split(':')[0]} in {letter.step}: {letter.record}").print("rejected")
    env.execute()


if __name__ == "__main__":
    main()
