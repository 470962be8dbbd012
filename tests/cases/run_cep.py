"""Run pattern cases: `python tests/cases/run_cep.py FILE`.

A line for each failing case, and a last line `N passed, M failed, K skipped`. The events of a case are given to the automaton
in the order in which they are listed, each at its time; an event without a time comes at the same time as all others.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from penstock.cep.compiling import compile_pattern
from penstock.cep.matching import Matcher, chain, run
from penstock.errors import PlanError
from tests.cases.pattern_words import UnknownWordError, pattern_of

Case = dict[str, Any]
Match = tuple[tuple[tuple[str, Any], ...], ...]


FIELDS = ("type", "id", "name", "price", "volume")
"""What events have, null where a case does not say."""


class WrongError(Exception):
    """A case gives something else."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run pattern cases.")
    parser.add_argument("file", type=Path)
    data = json.loads(parser.parse_args(arguments).file.read_text())
    counts: Counter[str] = Counter()
    for name, outcome, why in outcomes(data["cases"] if isinstance(data, dict) else data):
        counts[outcome] += 1
        if outcome != "passed":
            print(f"{outcome}: {name}: {why}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


def outcomes(cases: Iterable[Case]) -> Iterator[tuple[str, str, str]]:
    """For each case its name, what came of it, and why."""
    for number, case in enumerate(cases):
        name = str(case.get("id", number))
        try:
            check(case)
        except UnknownWordError as unknown:
            yield name, "skipped", str(unknown)
        except Exception as error:  # a runner goes on to the next case
            yield name, "failed", f"{type(error).__name__}: {error}"
        else:
            yield name, "passed", ""


def check(case: Case) -> None:
    expect = case["expect"]
    refused = expect.get("error") or expect.get("exception") or expect.get("malformed")
    if refused:
        try:
            matcher = Matcher(compile_pattern(pattern_of(case["pattern"])))
            list(run(matcher, _events(case)))
        except PlanError:
            return
        raise WrongError("expected an error")
    matcher = Matcher(compile_pattern(pattern_of(case["pattern"])))
    found = list(run(matcher, _events(case)))
    for timed_out, words in ((False, ("matches",)), (True, ("timeouts", "timedOut", "timed_out"))):
        wanted = next((expect[word] for word in words if word in expect), None)
        if wanted is not None:
            given = [[link.event.value for link in chain(one.last)] for one in found if one.timed_out == timed_out]
            _compare(wanted, given, "timed out" if timed_out else "match")


def _events(case: Case) -> list[tuple[int, dict[str, Any]]]:
    fields = {*FIELDS, *(name for event in case["input"] for name in event)} - {"ts"}
    return [
        (
            0 if event.get("ts") is None else event["ts"],
            {**dict.fromkeys(fields), **{k: v for k, v in event.items() if k != "ts"}},
        )
        for event in case["input"]
    ]


def _compare(wanted: list[list[Any]], given: list[list[dict[str, Any]]], what: str) -> None:
    fields = sorted({name for match in wanted for event in match for name in event}) or ["id"]
    expected = Counter(_match(match, fields) for match in wanted)
    found = Counter(_match(match, fields) for match in given)
    if expected != found:
        missing, more = expected - found, found - expected
        raise WrongError(f"{what}: missing {_shown(missing)}; too many {_shown(more)}")


def _match(events: list[dict[str, Any]], fields: list[str]) -> Match:
    return tuple(sorted(tuple((name, event.get(name)) for name in fields) for event in events))


def _shown(matches: Counter[Match]) -> str:
    shown = [" ".join(str(dict(event).get("id", dict(event))) for event in match) for match in matches.elements()]
    return "; ".join(shown) or "nothing"


if __name__ == "__main__":
    sys.exit(main())
