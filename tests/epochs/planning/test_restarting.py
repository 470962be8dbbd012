"""Errors that will not go away are not tried again and again; those that may, are."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import FileSource, RestartPolicy, StreamEnvironment
from penstock.config import NO_RESTART
from penstock.diagnosis.failures import mark_of, nature_of
from penstock.epochs.planning.restarting import Again, GiveUp, Seen, after_failures
from penstock.errors import ConfigError, EpochFailedError, Nature, PenstockError, SourceError, UserCodeError
from penstock.testing import VirtualClock

POLICY = RestartPolicy(attempts=3, first_delay=1, factor=2.0)


def seen(*failures: tuple[str, Nature]) -> list[Seen]:
    return [Seen(mark, nature) for mark, nature in failures]


@pytest.mark.parametrize(
    ("failures", "verdict"),
    [
        ([("a", "configuration")], GiveUp("trying again would not help")),
        ([("a", "deterministic")], Again(1000, False)),
        (
            [("a", "deterministic"), ("a", "deterministic")],
            GiveUp("the same error for the same input twice: trying again would not help"),
        ),
        ([("a", "deterministic"), ("b", "deterministic")], Again(2000, False)),
        (
            [("a", "deterministic"), ("b", "machine"), ("a", "deterministic")],
            GiveUp("the same error for the same input twice: trying again would not help"),
        ),
        ([("a", "transient")] * 2, Again(2000, True)),
        ([("a", "machine")] * 3, Again(4000, True)),
        ([("a", "transient")] * 4, GiveUp("gave up after 4 failures in a row")),
    ],
)
def test_the_decision(failures: list[tuple[str, Nature]], verdict: Again | GiveUp) -> None:
    assert after_failures(seen(*failures), POLICY) == verdict


def test_no_restart_is_no_restart() -> None:
    assert after_failures(seen(("a", "transient")), NO_RESTART) == GiveUp("gave up after a failure")


def test_what_is_skipped_is_not_the_same() -> None:
    """At most once: the same text is of another record."""
    assert after_failures(seen(("a", "deterministic"), ("a", "deterministic")), POLICY, skips=True) == Again(2000, True)


def wrapped(cause: BaseException | None, kind: type[PenstockError] = UserCodeError) -> PenstockError:
    error = kind("step 'x' failed")
    error.__cause__ = cause
    return error


def chained() -> ValueError:
    try:
        try:
            raise ConnectionResetError("gone")
        except ConnectionResetError:
            raise ValueError("no answer")  # noqa: B904 - as people write it
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("error", "nature"),
    [
        (wrapped(TypeError("x")), "deterministic"),
        (wrapped(KeyError("x")), "deterministic"),
        (wrapped(json.JSONDecodeError("x", "{", 0)), "deterministic"),
        (wrapped(ZeroDivisionError()), "deterministic"),
        (wrapped(TimeoutError()), "transient"),
        (wrapped(ConnectionRefusedError()), "transient"),
        (wrapped(FileNotFoundError()), "transient"),
        (wrapped(chained()), "transient"),
        (wrapped(RuntimeError("who knows")), "transient"),
        (wrapped(None, SourceError), "deterministic"),
        (wrapped(OSError(), SourceError), "transient"),
        (wrapped(ValueError(), EpochFailedError), "machine"),
        (ConfigError("x"), "configuration"),
        (SourceError("x", nature="configuration"), "configuration"),
    ],
)
def test_natures(error: BaseException, nature: Nature) -> None:
    assert nature_of(error) == nature


def test_marks_do_not_tell_addresses_apart() -> None:
    one, two = (UserCodeError(f"bad <object at {where}>", detail="record: 1") for where in ("0x7f01", "0x7f02"))
    assert mark_of(one) == mark_of(two)
    assert mark_of(one) != mark_of(UserCodeError("bad <object at 0x7f01>", detail="record: 2"))


# --- whole jobs ------------------------------------------------------------------------------------------------------------


def run(build: Callable[[StreamEnvironment], Any], **settings: Any) -> PenstockError:
    env = StreamEnvironment("failing", executor="inline", parallelism=2, **settings)
    build(env)
    with pytest.raises(PenstockError) as caught:
        env.execute(clock=VirtualClock())
    return caught.value


def failing(error: Exception, calls: list[int]) -> Callable[[int], int]:
    def function(number: int) -> int:
        if number == 3:
            calls.append(number)
            raise error
        return number

    return function


@pytest.mark.parametrize("raised", [TypeError("no"), KeyError("no"), AttributeError("no"), ValueError("no")])
def test_a_function_that_fails_for_a_record_is_tried_twice(raised: Exception) -> None:
    calls: list[int] = []
    error = run(lambda env: env.from_collection(range(5)).map(failing(raised, calls), name="bad").print())
    assert len(calls) == 2
    assert "step 'bad'" in error.what
    assert any("the same error for the same input twice" in note for note in error.__notes__)


@pytest.mark.parametrize("raised", [OSError("no"), TimeoutError("no"), ConnectionResetError("no")])
def test_what_may_go_away_follows_the_policy(raised: Exception, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []
    policy = RestartPolicy(attempts=3)
    with caplog.at_level(logging.WARNING):
        run(lambda env: env.from_collection(range(5)).map(failing(raised, calls)).print(), restart=policy)
    assert len(calls) == 4
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3
    assert "record: 3" in told[0]
    assert all(line.startswith("the same error again") and "\n" not in line for line in told[1:])


def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often an epoch was planned."""
    from penstock.epochs.planning.epoch_planner import EpochPlanner

    planned: list[int] = []
    plain = EpochPlanner.decide

    def decide(self: EpochPlanner, *arguments: Any, **options: Any) -> Any:
        planned.append(1)
        return plain(self, *arguments, **options)

    monkeypatch.setattr(EpochPlanner, "decide", decide)
    return planned


def test_a_missing_folder_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = asked(monkeypatch)
    error = run(lambda env: env.from_source(FileSource(str(tmp_path / "nothing"), format="json")).print())
    assert "there are no files" in error.what
    assert len(planned) == 1


def test_a_changed_watch_stops_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"n": 1}\n')

    def program(watch: Any) -> StreamEnvironment:
        env = StreamEnvironment("watching", executor="inline", parallelism=1, storage=str(tmp_path / "job"), until_idle=True)
        env.from_source(FileSource(str(tmp_path / "in"), format="json", watch=watch), name="in").print()
        return env

    program(1.0).execute()
    planned = asked(monkeypatch)
    with pytest.raises(SourceError, match="in another order"):
        program(None).execute(clock=VirtualClock())
    assert len(planned) == 1


def test_a_line_that_is_not_json_is_tried_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.json").write_text('{"n": 1}\nnonsense\n')
    planned = asked(monkeypatch)
    error = run(lambda env: env.from_source(FileSource(str(tmp_path / "in.json"))).print())
    assert "cannot be read" in error.what
    assert len(planned) == 2


def test_open_that_raises_names_the_function() -> None:
    from penstock.functions import MapFunction

    class Opening(MapFunction[int, int]):
        def open(self, context: Any) -> None:
            raise ValueError("no settings")

        def map(self, value: int) -> int:
            return value

    error = run(lambda env: env.from_collection([1]).map(Opening(), name="opening").print())
    assert error.what == "step 'opening': ValueError: no settings (open)"
    assert "Opening.open" in error.detail
    assert __file__ in error.detail
