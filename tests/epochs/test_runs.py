"""Runs of a job: the end, again, until idle; guarantees; restarts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import FileSink, FileSource, RestartPolicy, StreamEnvironment
from penstock.config import NO_RESTART
from penstock.errors import PenstockError, UserCodeError
from penstock.failpoints import InjectedError, arm
from penstock.testing import (
    CollectSink,
    Crash,
    Cut,
    End,
    ProcessingTime,
    ScriptedSource,
    VirtualClock,
    execute_inline,
    run_inline,
    running_counts,
)

WORDS = list("abacabadabacaba")
POINTS = [
    "source:planned",
    "task:read",
    "task:frame",
    "task:delta",
    "task:prepare",
    "manifest:before",
    "manifest:after",
    "sink:committed",
    "done:before",
    "recovery:before-commit",
    "recovery:committed",
]


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    arm("")


def counting(source: Any, sink: Any, storage: Path | str | None = None, **settings: Any) -> StreamEnvironment:
    env = StreamEnvironment("runs", parallelism=2, storage=None if storage is None else str(storage), **settings)
    stream = env.from_source(source, name="in").map(lambda w: {"word": w, "n": 1}, name="ones")
    stream.key_by("word").sum("n", name="count").sink_to(sink, name="out")
    return env


def counts(rows: list[dict[str, Any]]) -> Counter[tuple[str, int]]:
    return Counter((row["word"], row["n"]) for row in rows)


EXPECTED = Counter(running_counts(WORDS, lambda w: w))


def read_back(folder: Path) -> list[dict[str, Any]]:
    if not folder.exists():
        return []
    env = StreamEnvironment("read", parallelism=1)
    return run_inline(env.from_source(FileSource(str(folder), format="json")))


def test_bounded_input_comes_to_its_end_and_a_finished_job_stays_finished(tmp_path: Path) -> None:
    sink = CollectSink()
    source = ScriptedSource([*WORDS, End()], cut=4)
    first = execute_inline(counting(source, sink, tmp_path), until=10**6)
    assert (first.finished, first.records_in) == (True, len(WORDS))
    again = execute_inline(counting(source, sink, tmp_path), until=10**6)
    assert (again.finished, again.epochs, again.records_in) == (True, 0, 0)
    assert counts(sink.results()) == EXPECTED


def test_until_idle_stops_and_goes_on(tmp_path: Path) -> None:
    sink = CollectSink()
    for upto in (5, 5, 9, len(WORDS)):
        source = ScriptedSource(WORDS[:upto], cut=2)
        result = execute_inline(counting(source, sink, tmp_path))
        assert (result.finished, result.stopped) == (False, True)
        assert len(sink.results()) == upto
    assert counts(sink.results()) == EXPECTED


def test_a_program_without_records() -> None:
    sink = CollectSink()
    assert execute_inline(counting(ScriptedSource([End()]), sink), until=1000).finished
    assert sink.results() == []


@pytest.mark.parametrize("point", POINTS)
def test_exactly_once_through_every_fail_point(tmp_path: Path, point: str) -> None:
    """The driver dies at the point, in its second epoch or later; the next one goes on."""
    out = tmp_path / "out"
    source = ScriptedSource([*WORDS, End()], cut=3)
    failed = 0
    for turn in range(12):
        arm(f"{point}=raise@{1 if point.startswith('recovery') else 2 + turn % 2}" if turn < 3 else "")
        env = counting(source, FileSink(str(out), format="json"), tmp_path / "storage", restart=NO_RESTART)
        try:
            if execute_inline(env, until=10**6).finished:
                break
        except (InjectedError, PenstockError):
            failed += 1
    assert failed > 0
    assert counts(read_back(out)) == EXPECTED


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("cut", [None, 1, 4])
def test_exactly_once_through_crashes_of_tasks(tmp_path: Path, cut: int | None, times: int) -> None:
    script = [*WORDS[:4], Crash(times), *WORDS[4:9], Crash(times), *WORDS[9:], End()]
    out = tmp_path / "out"
    result = execute_inline(
        counting(ScriptedSource(script, cut=cut), FileSink(str(out), format="json"), tmp_path / "s"), until=10**6
    )
    assert (result.finished, result.restarts) == (True, 2 * times)
    assert counts(read_back(out)) == EXPECTED


@pytest.mark.parametrize("point", ["manifest:before", "manifest:after", "sink:committed"])
def test_at_least_once_loses_nothing_and_may_repeat(tmp_path: Path, point: str) -> None:
    out = tmp_path / "out"
    source = ScriptedSource([*WORDS, End()], cut=3)
    for turn in range(4):
        arm(f"{point}=raise@3" if turn == 0 else "")
        env = counting(
            source, FileSink(str(out), format="json"), tmp_path / "storage", guarantee="at-least-once", restart=NO_RESTART
        )
        try:
            if execute_inline(env, until=10**6).finished:
                break
        except InjectedError:
            assert turn == 0
    found = counts(read_back(out))
    assert set(found) == set(EXPECTED)
    assert not EXPECTED - found
    if point == "manifest:before":
        assert found.total() == EXPECTED.total() + 3


def test_at_most_once_never_repeats_and_may_lose() -> None:
    sink = CollectSink()
    numbers = list(range(20))
    script = [*numbers[:7], Crash(), *numbers[7:], End()]
    env = StreamEnvironment("most", parallelism=2, guarantee="at-most-once")
    env.from_source(ScriptedSource(script, cut=4)).sink_to(sink)
    result = execute_inline(env, until=10**6)
    assert result.finished
    assert result.restarts == 1
    found = Counter(sink.results())
    assert max(found.values()) == 1
    assert sorted(found) == [n for n in numbers if n not in range(4, 8)]


def test_at_most_once_never_repeats_through_a_new_driver(tmp_path: Path) -> None:
    out = tmp_path / "out"
    source = ScriptedSource([*WORDS, End()], cut=3)
    for turn in range(4):
        arm("task:prepare=raise@3" if turn == 0 else "manifest:before=raise@3" if turn == 1 else "")
        env = counting(
            source, FileSink(str(out), format="json"), tmp_path / "storage", guarantee="at-most-once", restart=NO_RESTART
        )
        try:
            if execute_inline(env, until=10**6).finished:
                break
        except (InjectedError, PenstockError):
            pass
    found = counts(read_back(out))
    assert max(found.values()) == 1
    assert 0 < found.total() < len(WORDS)


def test_at_most_once_sheds_when_overloaded_and_counts_what_it_shed() -> None:
    sink = CollectSink()
    env = StreamEnvironment("shed", parallelism=1, guarantee="at-most-once", max_records_per_epoch=2)
    env.from_source(ScriptedSource([*range(100), ProcessingTime(50), 100, 101, Cut(), End()])).sink_to(sink)
    result = execute_inline(env, until=10**6)
    found = sink.results()
    assert len(set(found)) == len(found)
    assert found[-2:] == [100, 101]
    assert result.shed > 0
    assert len(found) + result.shed == 102


def test_a_restart_policy_that_gets_through() -> None:
    sink, clock = CollectSink(), VirtualClock()
    policy = RestartPolicy(attempts=3, first_delay=timedelta(seconds=1), factor=3, longest_delay=timedelta(seconds=5))
    script = ["a", Crash(3), "b", Cut(), Crash(3), "c", End()]
    result = execute_inline(counting(ScriptedSource(script), sink, restart=policy), clock=clock, until=10**6)
    assert (result.finished, result.restarts) == (True, 6)
    assert [delay for delay in clock.slept if delay >= 1] == [1.0, 3.0, 5.0] * 2
    assert counts(sink.results()) == Counter({("a", 1): 1, ("b", 1): 1, ("c", 1): 1})


def test_a_restart_policy_that_gives_up() -> None:
    sink = CollectSink()
    env = counting(ScriptedSource(["a", Cut(), Crash(9), "b", End()]), sink, restart=RestartPolicy(attempts=2))
    with pytest.raises(PenstockError, match="crashes at item 2") as caught:
        execute_inline(env, until=10**6)
    assert "gave up after 3 failures in a row" in "".join(caught.value.__notes__)
    assert counts(sink.results()) == Counter({("a", 1): 1})


def test_an_error_of_the_user_names_everything_when_the_policy_gives_up() -> None:
    calls = []

    def picky(value: str) -> str:
        if value == "b":
            calls.append(value)
            raise ConnectionError("no b please")
        return value

    env = StreamEnvironment("picky", parallelism=1, restart=RestartPolicy(attempts=2))
    stream = env.from_source(ScriptedSource(["a", "b", End()])).map(picky, name="picky")
    with pytest.raises(UserCodeError) as caught:
        run_inline(stream, until=10**6)
    text = str(caught.value)
    assert text.startswith("step 'picky': ConnectionError: no b please")
    assert "picky (" in text
    assert "test_runs.py:" in text
    assert "record: 'b'" in text
    assert len(calls) == 3


def test_an_error_that_goes_away_is_forgotten() -> None:
    failures = iter([True, True, False, False])

    def flaky(value: int) -> int:
        if value == 2 and next(failures, False):
            raise OSError("not now")
        return value

    env = StreamEnvironment("flaky", parallelism=1)
    assert run_inline(env.from_source(ScriptedSource([1, 2, 3, End()])).map(flaky), until=10**6) == [1, 2, 3]
