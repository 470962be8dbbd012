"""What is done ahead: waited for by whoever needs it, and ended when nobody does."""

from __future__ import annotations

import threading

import pytest

from penstock.executors.spark.warmup import WarmUp


def test_whoever_needs_it_waits_for_its_end() -> None:
    go, done = threading.Event(), threading.Event()

    def action() -> None:
        assert go.wait(60)
        done.set()

    ahead = WarmUp(action)
    assert ahead.runs
    threading.Timer(0.05, go.set).start()
    ahead.wait()
    assert done.is_set()
    assert not ahead.runs


def test_its_error_is_raised_once() -> None:
    def action() -> None:
        raise OSError("no Spark here")

    ahead = WarmUp(action)
    with pytest.raises(OSError, match="no Spark here"):
        ahead.wait()
    ahead.wait()


def test_one_that_is_not_wanted_is_killed_as_soon_as_there_is_something_to_kill() -> None:
    """A JVM is not there yet in the first moments."""
    killed = threading.Event()
    tries = 0

    def kill() -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            killed.set()

    def action() -> None:
        killed.wait(60)

    ahead = WarmUp(action)
    ahead.stop(60, kill)
    assert tries == 3
    assert not ahead.runs


def test_one_that_does_not_end_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    never = threading.Event()

    def action() -> None:
        never.wait(60)

    ahead = WarmUp(action)
    ahead.stop(0.1, lambda: None)
    assert ahead.runs
    assert "is left behind" in caplog.text
    never.set()
    ahead.wait()
