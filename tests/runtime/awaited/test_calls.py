"""How calls are made: so many at once, in time, again after failures, in threads; and what happens to those that fail."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from penstock import RestartPolicy, StreamEnvironment
from penstock.config import NO_RESTART, Retry
from penstock.contexts import RuntimeContext
from penstock.errors import PenstockError, ReturnedValueError, UserCodeError
from penstock.functions import AsyncFunction, MapFunction
from penstock.runtime.ordering import ROUND_ROWS
from penstock.testing import AsyncHarness, CollectSink, Crash, Cut, End, ScriptedSource, execute_inline, run_inline
from tests.runtime.awaited.services import Query, Service


def numbers(count: int, **settings: Any) -> Any:
    env = StreamEnvironment("calls", parallelism=1, restart=NO_RESTART, **settings)
    return env.from_collection(list(range(count)), name="in")


async def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("capacity", [1, 7, 500])
def test_so_many_at_once(capacity: int, ordered: bool) -> None:
    service = Service()
    found = run_inline(numbers(200).map(lambda n: Query(n, n % 4)).async_map(service, capacity=capacity, ordered=ordered))
    assert sorted(found) == [10 * number for number in range(200)]


class Running(AsyncFunction[int, int]):
    """How many calls there are at once: the last is kept on the class."""

    most = 0

    def open(self, context: RuntimeContext) -> None:
        self.running = 0

    async def async_invoke(self, value: int) -> int:
        self.running += 1
        type(self).most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        return value


@pytest.mark.parametrize("capacity", [1, 3, 50])
def test_no_more_than_the_capacity(capacity: int) -> None:
    Running.most = 0
    run_inline(numbers(100).async_map(Running(), capacity=capacity))
    assert Running.most == capacity


def test_a_batch_costs_its_slowest_call() -> None:
    """All are under way at once: none is answered before the last has been asked."""
    asked = 0

    async def together(number: int) -> int:
        nonlocal asked
        asked += 1
        while asked < 100:
            await asyncio.sleep(0)
        return number

    assert run_inline(numbers(100).async_map(together, capacity=100)) == list(range(100))


# --- back-pressure ------------------------------------------------------------------------------------------------------


def test_a_full_queue_slows_reading() -> None:
    """Nothing more is read while there are as many calls as may be."""
    read, answered, most = 0, 0, 0

    def reading(number: int) -> int:
        nonlocal read
        read += 1
        return number

    async def slow(number: int) -> int:
        nonlocal answered, most
        await asyncio.sleep(0)
        most = max(most, read - answered)
        answered += 1
        return number

    env = StreamEnvironment("calls", parallelism=1)
    script = ScriptedSource([item for number in range(40) for item in ([number] * 5, Cut())] + [End()])
    many = env.from_source(script).flat_map(lambda some: some).map(reading)
    assert len(run_inline(many.async_map(slow, capacity=4))) == 200
    assert most <= 4 + 5, "the calls in flight, and one batch that is read"


def test_what_is_held_is_bounded() -> None:
    """One answer that is late holds those behind it back; so much is held, and no more is read."""
    started = 0
    late: list[int] = []

    async def first_is_late(number: int) -> int:
        nonlocal started
        started += 1
        if number == 0:
            before = -1
            while before < started:  # until nothing more is asked
                before = started
                await asyncio.sleep(0.2)
            late.append(started)
        return number

    count = 4 * ROUND_ROWS
    with AsyncHarness(lambda given: given.async_map(first_is_late, capacity=10)) as harness:
        for start in range(0, count, 1024):
            harness.send_all([(number, None) for number in range(start, start + 1024)])
        assert [value for value, _ in harness.take()] == list(range(count))
    assert late[0] <= ROUND_ROWS + 1024


# --- time, and again ------------------------------------------------------------------------------------------------------


async def forever(number: int) -> int:
    await asyncio.Event().wait()
    return number


def test_what_is_not_answered_in_time() -> None:
    stream = numbers(3).async_map(forever, timeout=0.02, errors="dead_letter", name="ask")
    letters = run_inline(stream.dead_letters())
    assert [(letter.record, letter.error) for letter in letters] == [
        (number, "TimeoutError: no answer within 20 ms") for number in range(3)
    ]


def test_an_answer_for_when_time_is_over() -> None:
    class Patient(AsyncFunction[int, str]):
        async def async_invoke(self, value: int) -> str:
            if value == 1:
                await asyncio.Event().wait()
            return "answered"

        def timeout(self, value: int) -> str:
            return f"{value} is late"

    assert run_inline(numbers(3).async_map(Patient(), timeout=0.05)) == ["answered", "1 is late", "answered"]


def test_a_timeout_of_the_function_is_its_own() -> None:
    async def impatient(number: int) -> int:
        raise TimeoutError("the pool is empty")

    letters = run_inline(numbers(1).async_map(impatient, timeout=5, errors="dead_letter").dead_letters())
    assert letters[0].error == "TimeoutError: the pool is empty"


def counted(stream: Any) -> dict[str, int]:
    stream.sink_to(CollectSink())
    return dict(execute_inline(stream._env).counters["ask"])


def test_attempts() -> None:
    tries: Counter[int] = Counter()

    async def flaky(number: int) -> int:
        tries[number] += 1
        if tries[number] <= number:
            raise ConnectionError("gone")
        return number

    found = counted(numbers(4).async_map(flaky, retry=Retry(attempts=2, first_delay=0.001), errors="skip", name="ask"))
    assert tries == {0: 1, 1: 2, 2: 3, 3: 3}
    assert (found["calls"], found["retries"]) == (4, 5)


def test_only_after_some_errors() -> None:
    tries: Counter[int] = Counter()

    async def wrong(number: int) -> int:
        tries[number] += 1
        raise (ValueError if number else OSError)("no")

    run_inline(numbers(2).async_map(wrong, retry=Retry(attempts=3, first_delay=0, on=(OSError,)), errors="skip"))
    assert tries == {0: 4, 1: 1}


def test_again_because_of_the_result() -> None:
    tries = iter([None, None, "ready"])

    async def poll(number: int) -> str | None:
        return next(tries)

    retry = Retry(attempts=5, first_delay=0, if_result=lambda answer: answer is None)
    assert run_inline(numbers(1).async_map(poll, retry=retry)) == ["ready"]


def test_an_attempt_that_hangs_is_made_again() -> None:
    tries: Counter[int] = Counter()

    async def hangs_once(number: int) -> int:
        tries[number] += 1
        if tries[number] == 1:
            await asyncio.Event().wait()
        return number

    retry = Retry(attempts=1, first_delay=0, attempt_timeout=0.02)
    found = counted(numbers(2).async_map(hangs_once, retry=retry, name="ask"))
    assert (found["calls"], found["retries"], found["timeouts"]) == (2, 2, 2)


# --- errors ---------------------------------------------------------------------------------------------------------------


async def sometimes(number: int) -> int:
    if number % 3 == 1:
        raise ValueError(f"not {number}")
    return number


def test_the_step_fails() -> None:
    with pytest.raises(UserCodeError, match="step 'ask': ValueError: not 1") as caught:
        run_inline(numbers(5).async_map(sometimes, name="ask"))
    assert "record: 1" in caught.value.detail
    assert f"sometimes ({__file__}" in caught.value.detail
    assert caught.value.detail.count("raised at: ") == 1


@pytest.mark.parametrize("ordered", [True, False])
def test_dead_letters(ordered: bool) -> None:
    asked = numbers(6).async_map(sometimes, errors="dead_letter", ordered=ordered, name="ask")
    dead = CollectSink()
    asked.dead_letters().sink_to(dead)
    assert sorted(run_inline(asked)) == [0, 2, 3, 5]
    assert sorted(letter.record for letter in dead.results()) == [1, 4]


def test_a_cancelled_call_is_an_error() -> None:
    async def gives_up(number: int) -> int:
        raise asyncio.CancelledError

    with pytest.raises(UserCodeError, match="cancelled from within"):
        run_inline(numbers(1).async_map(gives_up))


def test_an_exit_is_not_swallowed() -> None:
    async def leaves(number: int) -> int:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        run_inline(numbers(1).async_map(leaves, errors="skip"))


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (lambda n: n, {}, "returned a int, where it is awaited"),
        (lambda some: double(some[0]), {"batch": 2}, "returned one value"),
    ],
    ids=["not awaited", "one for several"],
)
def test_what_no_policy_hides(function: Callable[..., Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(ReturnedValueError, match=message):
        run_inline(numbers(2).async_map(function, errors="skip", name="ask", **options))


def test_as_many_answers_as_records() -> None:
    async def fewer(some: list[int]) -> list[int]:
        return some[1:]

    with pytest.raises(PenstockError, match="step 'ask': 1 answers to 2 records"):
        run_inline(numbers(2).async_map(fewer, batch=2, name="ask"))


# --- open, close, threads ---------------------------------------------------------------------------------------------------


class Client(AsyncFunction[int, tuple[int, int]]):
    """Counts how often it is opened and closed; its connection belongs to the loop it was opened in."""

    opened: list[Any] = []
    closed: list[Any] = []

    async def open(self, context: RuntimeContext) -> None:
        self.loop = asyncio.get_running_loop()
        self.used = 0
        self.opened.append(self)

    async def close(self) -> None:
        assert self.loop is asyncio.get_running_loop()
        self.closed.append(self)

    async def async_invoke(self, value: int) -> tuple[int, int]:
        assert self.loop is asyncio.get_running_loop()
        self.used += 1
        return value, self.used


def test_a_client_is_kept_from_epoch_to_epoch() -> None:
    Client.opened, Client.closed = [], []
    threads = threading.active_count()
    env = StreamEnvironment("calls", parallelism=1)
    stream = env.from_source(ScriptedSource([1, Cut(), 2, Cut(), 3, End()])).async_map(Client())
    assert run_inline(stream) == [(1, 1), (2, 2), (3, 3)]
    assert Client.opened == Client.closed
    assert len(Client.opened) == 1
    assert threading.active_count() == threads


def test_after_a_failure_it_is_opened_anew() -> None:
    Client.opened, Client.closed = [], []
    env = StreamEnvironment("calls", parallelism=1, restart=RestartPolicy(attempts=3, first_delay=0))
    stream = env.from_source(ScriptedSource([1, Cut(), 2, Crash(), 3, End()])).async_map(Client())
    assert [value for value, _ in run_inline(stream)] == [1, 2, 3]
    assert len(Client.opened) == len(Client.closed) >= 2


def test_calls_in_flight_end_with_the_epoch_that_fails() -> None:
    ended: list[int] = []

    async def hangs(number: int) -> int:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)
        return number

    env = StreamEnvironment("calls", parallelism=1, restart=NO_RESTART)
    with pytest.raises(PenstockError):
        run_inline(env.from_source(ScriptedSource([1, 2, Crash(), End()])).async_map(hangs))
    assert sorted(ended) in ([], [1, 2])  # nothing is asked if the reader fails before it passes anything on
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("penstock-async")]


def test_an_open_that_raises() -> None:
    class Refused(AsyncFunction[int, int]):
        async def open(self, context: RuntimeContext) -> None:
            raise ConnectionError("refused")

        async def async_invoke(self, value: int) -> int:
            return value

    with pytest.raises(UserCodeError, match=r"step 'ask': ConnectionError: refused \(open\)") as caught:
        run_inline(numbers(1).async_map(Refused(), name="ask"))
    assert "Refused.open" in caught.value.detail


def test_plain_functions_in_threads() -> None:
    seen: set[str] = set()
    meeting = threading.Barrier(4, timeout=30)

    class Blocking(MapFunction[int, int]):
        def open(self, context: RuntimeContext) -> None:
            self.context = context

        def map(self, value: int) -> int:
            meeting.wait()  # four are here at once, or this fails
            seen.add(threading.current_thread().name)
            self.context.count("met")
            return -value

    stream = numbers(40).async_map(Blocking(), threads=True, capacity=4, name="ask")
    assert counted(stream)["met"] == 40
    assert len(seen) == 4


def test_a_thread_that_hangs_counts_until_it_comes_back() -> None:
    running, most = 0, 0
    lock = threading.Lock()

    def slow(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.05)
        with lock:
            running -= 1
        return number

    assert run_inline(numbers(6).async_map(slow, threads=True, capacity=2, timeout=0.01, errors="skip")) == []
    assert most <= 2
