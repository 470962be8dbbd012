"""What cannot be pickled is named: the step, the function, the variable."""

from __future__ import annotations

import functools
import re
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from penstock import KeyedProcessFunction, ProcessFunction, StreamEnvironment, Watermarks
from penstock.errors import PlanError, UserCodeError
from penstock.functions import MapFunction
from penstock.runtime.job import CompiledJob, Stage, StageStep
from penstock.storage import open_storage
from penstock.testing import run_inline

LOCK = threading.Lock()


def numbers() -> Any:
    return StreamEnvironment("ship", executor="inline", parallelism=1).from_collection([1, 2])


def refused(stream: Any, tmp_path: Path) -> str:
    """What shipping the steps of a program says."""
    steps = tuple(StageStep(step=n.step, definition=n.definition, inputs=len(n.inputs)) for n in stream._env.graph)
    job = CompiledJob(
        name="ship",
        job="job",  # type: ignore[arg-type]
        storage=open_storage(str(tmp_path)),
        stages=(Stage(index=0, steps=steps),),
        parallelism=1,
        max_parallelism=1,
        key_hash=1,
        state_ids={},
        fingerprint="",
    )
    with pytest.raises(PlanError) as caught:
        job.dumps()
    return str(caught.value)


@pytest.fixture(autouse=True)
def by_value() -> Iterator[None]:
    """As for a program that workers cannot import."""
    import tests.runtime.test_unshippable as here

    cloudpickle.register_pickle_by_value(here)
    yield
    cloudpickle.unregister_pickle_by_value(here)


class Counting(MapFunction[int, int]):
    def __init__(self) -> None:
        self.guard = threading.Lock()

    def map(self, value: int) -> int:
        return value


class Nested(ProcessFunction[int, int]):
    def __init__(self) -> None:
        self.options = {"servers": [{"connection": socket.socket()}]}

    def process(self, value: int, ctx: Any) -> Any:
        yield value


class Slotted(KeyedProcessFunction[Any, Any, Any]):
    __slots__ = ("running",)

    def __init__(self) -> None:
        self.running = (n for n in range(3))

    def process(self, value: Any, ctx: Any) -> Any:
        yield value


@dataclass
class Callables:
    inner: Callable[[int], int]

    def __call__(self, value: int) -> int:
        return self.inner(value)


def with_default(value: int, lock: Any = LOCK) -> int:
    return value


def with_global(value: int) -> int:
    with LOCK:
        return value


def with_inner_global(value: int) -> int:
    return next(value for _ in [LOCK])


def closure() -> Callable[[int], int]:
    guard = threading.Lock()

    def inner(value: int) -> int:
        with guard:
            return value

    return inner


def file_of(path: Path) -> Callable[[int], int]:
    log = path.open("w")

    def write(value: int) -> int:
        log.write(str(value))
        return value

    return write


CASES: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "closure": (lambda p: numbers().map(closure(), name="step"), "the variable 'guard' that closure.<locals>.inner", "lock"),
    "closure in a closure": (
        lambda p: numbers().map((lambda f: lambda v: f(v))(closure()), name="step"),
        "the variable 'guard' that closure.<locals>.inner",
        "lock",
    ),
    "open file": (lambda p: numbers().map(file_of(p / "log"), name="step"), "the variable 'log' that file_of", "TextIOWrapper"),
    "default": (lambda p: numbers().map(with_default, name="step"), "the default of 'lock' of with_default", "lock"),
    "global": (lambda p: numbers().map(with_global, name="step"), "the global variable 'LOCK' that with_global", "lock"),
    "global inside": (lambda p: numbers().map(with_inner_global, name="step"), "the global variable 'LOCK'", "lock"),
    "field": (lambda p: numbers().map(Counting(), name="step"), "the field Counting.guard", "lock"),
    "nested": (lambda p: numbers().process(Nested(), name="step"), "the item 'connection'", "socket"),
    "slot": (lambda p: numbers().key_by(lambda v: v).process(Slotted(), name="step"), "the field Slotted.running", "generator"),
    "partial": (
        lambda p: numbers().map(functools.partial(max, threading.Lock()), name="step"),
        "argument 0 of a partial",
        "lock",
    ),
    "object": (lambda p: numbers().map(Callables(closure()), name="step"), "the variable 'guard'", "lock"),
    "method": (lambda p: numbers().map(Counting().map, name="step"), "the field Counting.guard", "lock"),
    "batches": (
        lambda p: numbers().map_batches(lambda b, lock=LOCK: b, name="step"),
        "the default of 'lock' of <lambda>",
        "lock",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_variable_is_named(name: str, tmp_path: Path) -> None:
    make, variable, kind = CASES[name]
    text = refused(make(tmp_path), tmp_path)
    first, *rest = text.splitlines()
    assert first.startswith("step 'step' cannot be sent to workers: ")
    assert variable in first
    assert first.endswith("cannot be pickled")
    assert re.search(rf"value: .*{kind}", text)
    if name != "partial":
        assert re.search(r"\(\S*test_unshippable.py:\d+\)", text)
    assert "hint: make it in the worker instead: in open(self, context)" in rest[-1]


def test_a_timestamp_function(tmp_path: Path) -> None:
    env = StreamEnvironment("ship", executor="inline", parallelism=1)
    text = refused(env.from_collection([1], watermarks=Watermarks.none(timestamp=closure()), name="in"), tmp_path)
    assert text.startswith("step 'in' cannot be sent to workers: the variable 'guard' that closure.<locals>.inner")


@pytest.mark.parametrize("how", ["key_by", "rebalance", "broadcast"])
def test_a_record_that_cannot_be_sent(how: str) -> None:
    stream = numbers().map(lambda n: {"n": n, "held": [threading.Lock()] if n == 2 else []}, name="make")
    after = stream.key_by("n").reduce(max) if how == "key_by" else getattr(stream, how)().map(str)
    with pytest.raises(UserCodeError, match="step 'make': a record that it emits cannot be sent to another partition") as caught:
        run_inline(after)
    assert "record: {'n': 2, 'held': [<unlocked _thread.lock" in str(caught.value)
    assert "in it: the item 'held', item 0: <unlocked _thread.lock" in str(caught.value)


def test_what_can_be_shipped_is(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        refused(numbers().map(lambda v: v + 1), tmp_path)
