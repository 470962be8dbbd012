"""Word count without windows: every word gets its running count.

python examples/word_count.py
"""

from penstock import DataStream, StreamEnvironment

LINES = [
    "to be or not to be that is the question",
    "whether tis nobler in the mind to suffer",
    "the slings and arrows of outrageous fortune",
    "or to take arms against a sea of troubles",
]


def build(env: StreamEnvironment, lines: list[str]) -> DataStream[tuple[str, int]]:
    words: DataStream[str] = env.from_collection(lines, name="lines").flat_map(str.split, name="words")
    return words.map(lambda word: (word, 1), name="ones").key_by(0).sum(1, name="counts")


def main() -> None:
    env = StreamEnvironment("word-count")
    counts = build(env, LINES).execute_and_collect()
    # A running count: the last one of each word is its total.
    for word, count in sorted(dict(counts).items(), key=lambda pair: (-pair[1], pair[0])):
        print(f"{count:3} {word}")


if __name__ == "__main__":
    main()
