from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from penstock.executors.spark import worker


class Node:
    """Refers to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(worker, "_MANY", 10_000)
    monkeypatch.setattr(worker, "_LOOK_EVERY", 10)
    yield
    gc.unfreeze()


def tasks(set_aside: worker.SetAside, count: int = 10) -> None:
    """The daemon collects after each task, which is only worth the time where much is searched."""
    for _ in range(count):
        set_aside()
        if not gc.get_freeze_count():
            gc.collect()


def test_a_large_heap_that_does_not_grow_is_not_searched_again() -> None:
    set_aside = worker.SetAside()
    kept = [[number] for number in range(2 * worker._MANY)]
    node = Node()
    dead = weakref.ref(node)
    tasks(set_aside, 1)
    del node
    tasks(set_aside)
    assert dead() is not None
    assert gc.get_freeze_count() > len(kept)


def test_cycles_that_outlive_their_tasks_do_not_gather() -> None:
    set_aside = worker.SetAside()
    tasks(set_aside, 1)
    first = gc.get_freeze_count()
    most = 0
    for _ in range(20):
        nodes = [Node() for _ in range(worker._MANY)]
        set_aside()
        nodes.clear()
        tasks(set_aside)
        most = max(most, gc.get_freeze_count())
    assert first < most < worker._GROWN * first + 4 * worker._MANY
