"""When a Spark job is given up, and how: with an engine that is told what to do."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from penstock.executors.spark.watch import JobWatch, Sight, Stalls

WORKS, LOST, BARE, IDLE = Sight(2, 1, lost=True), Sight(0, 0, lost=True), Sight(0, 0), Sight(2, 0, lost=True)


def given_up_after(stalls: Stalls, sight: Sight | None, most: int = 1000) -> int | None:
    """How many looks, one a second, show the same before the job is given up."""
    return next((looks for looks in range(1, most) if stalls.see(sight, 1.0)), None)


def test_a_job_is_given_up_when_nobody_works_on_it() -> None:
    assert given_up_after(Stalls(60), LOST) == 20
    assert given_up_after(Stalls(60), BARE) == 60, "who has never had executors may have to wait for them"
    assert given_up_after(Stalls(60), IDLE) == 60
    assert given_up_after(Stalls(60), None) == 60
    assert given_up_after(Stalls(60), WORKS) is None, "a task may take as long as it likes"


def test_what_works_again_starts_afresh() -> None:
    stalls = Stalls(60)
    for sight, seconds in ((LOST, 19), (WORKS, 1), (LOST, 19), (WORKS, 1), (IDLE, 59), (WORKS, 1), (None, 59), (WORKS, 1)):
        assert not any(stalls.see(sight, 1.0) for _ in range(seconds)), (sight, seconds)
    assert given_up_after(stalls, LOST) == 20


def test_a_jvm_that_answers_now_and_then_says_that_there_are_no_executors() -> None:
    stalls = Stalls(60)
    reasons = [why for n in range(60) if (why := stalls.see(LOST if n % 2 else None, 1.0))]
    assert "no executor" in reasons[0]


class Engine:
    """Answers with `sight`, or not at all; a cancelled job ends, if it `obeys`."""

    def __init__(self) -> None:
        self.sight: Sight | None = LOST
        self.answers = threading.Event()
        self.answers.set()
        self.obeys = True
        self.job_over = threading.Event()
        self.cancelled = threading.Event()
        self.was_cut = threading.Event()

    def look(self) -> Sight | None:
        self.answers.wait()
        return self.sight

    def cancel(self) -> None:
        self.answers.wait()
        self.cancelled.set()
        if self.obeys:
            self.job_over.set()

    def cut(self) -> None:
        self.was_cut.set()
        self.job_over.set()


@pytest.fixture
def engine() -> Iterator[Engine]:
    one = Engine()
    yield one
    one.answers.set()


@pytest.fixture
def watch(engine: Engine) -> Iterator[JobWatch]:
    one = JobWatch(engine, 0.4)
    yield one
    one.close()


def waits(watch: JobWatch, engine: Engine) -> str:
    """Wait for a job, as an executor does; why it was given up."""
    watched = watch.begin("a job")
    try:
        assert engine.job_over.wait(60)
    finally:
        watch.end(watched)
    return watched.because


def test_a_stalled_job_is_cancelled(watch: JobWatch, engine: Engine) -> None:
    assert "no executor" in waits(watch, engine)
    assert engine.cancelled.is_set()
    assert not engine.was_cut.is_set()


def test_one_that_cannot_be_cancelled_is_cut_off(watch: JobWatch, engine: Engine) -> None:
    engine.obeys = False
    assert "no executor" in waits(watch, engine)
    assert engine.cancelled.is_set()
    assert engine.was_cut.is_set()


def test_a_jvm_that_does_not_answer_is_cut_off_and_the_next_one_is_not_cancelled(watch: JobWatch, engine: Engine) -> None:
    engine.answers.clear()
    assert "has not answered" in waits(watch, engine)
    assert engine.was_cut.is_set()
    engine.answers.set()  # what was asked before is answered now: by the session that was started anew
    engine.sight = WORKS
    engine.job_over.clear()
    watched = watch.begin("the next job")
    assert not engine.job_over.wait(1.5)
    assert not engine.cancelled.is_set()
    assert not watched.because
    watch.end(watched)


def test_who_does_not_want_to_wait_interrupts(watch: JobWatch, engine: Engine) -> None:
    engine.sight = WORKS
    engine.obeys = False
    found: list[str] = []
    job = threading.Thread(target=lambda: found.append(waits(watch, engine)), daemon=True)
    job.start()
    while watch.idle:
        pass
    watch.interrupt("told to stop")
    job.join(60)
    assert found == ["told to stop"]
    assert watch.refusal == "told to stop"


def test_a_watch_that_was_closed_watches_the_next_job(watch: JobWatch, engine: Engine) -> None:
    """A driver closes its executor when it is replaced; as a standby it uses it again, and may drive once more."""
    for _ in range(2):
        engine.job_over.clear()
        assert "it has had no executor" in waits(watch, engine)
        watch.close()
    watch.close()
