"""The pattern c, then a one or more times consecutively, then b."""

from __future__ import annotations

from penstock import Pattern, StreamEnvironment, Watermarks

EVENTS = ["c", "d", "a", "a", "a", "d", "a", "b"]


def main() -> None:
    env = StreamEnvironment("strict-run", executor="inline", parallelism=1)
    events = env.from_collection(list(enumerate(EVENTS)), watermarks=Watermarks.monotonous(timestamp=lambda event: event[0]))
    pattern = (
        Pattern.begin("c")
        .where(lambda event: event[1] == "c")
        .followed_by("a")
        .where(lambda event: event[1] == "a")
        .one_or_more()
        .consecutive()
        .followed_by("b")
        .where(lambda event: event[1] == "b")
    )
    matches = events.pattern(pattern).select(lambda match: " ".join(f"{e[1]}{e[0]}" for s in "cab" for e in match[s]), name="run")
    for match in matches.execute_and_collect():
        print(match)


if __name__ == "__main__":
    main()
