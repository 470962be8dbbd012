"""Word count without windows: text files, one running count for each word, JSON."""

from __future__ import annotations

from penstock import FileSink, FileSource
from tests.torture.jobs.arguments import arguments, finish


def main() -> None:
    args = arguments()
    env = args.environment("words", max_bytes_per_epoch=args.size // 5)
    lines = env.from_source(FileSource(args.input, format="text"), name="lines")
    words = lines.flat_map(lambda line: [(word, 1) for word in line.split()])
    words.key_by(0).sum(1, name="count").sink_to(FileSink(args.out, columns=["word", "count"]), name="out")
    finish(env.execute())


if __name__ == "__main__":
    main()
