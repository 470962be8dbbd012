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
def as_it_was() -> Iterator[None]:
    yield
    gc.unfreeze()


def tasks(set_aside: worker.SetAside, count: int = worker._LOOK_EVERY) -> None:
    """The daemon collects after each task."""
    for _ in range(count):
        set_aside()
    gc.collect()


def test_a_large_heap_that_does_not_grow_is_not_searched_again() -> None:
    set_aside = worker.SetAside()
    kept = [[number] for number in range(2 * worker._MANY)]
    node = Node()
    dead = weakref.ref(node)
    tasks(set_aside, 1)
    del node
    tasks(set_aside)
    tasks(set_aside)
    assert dead() is not None
    assert gc.get_freeze_count() > len(kept)


def test_cycles_that_outlive_their_tasks_do_not_gather() -> None:
    set_aside = worker.SetAside()
    tasks(set_aside, 1)
    first = gc.get_freeze_count()
    for _ in range(5):
        nodes = [Node() for _ in range(worker._MANY)]
        dead = weakref.ref(nodes[0])
        set_aside()
        nodes.clear()
        tasks(set_aside)
        tasks(set_aside)
    assert dead() is None or gc.get_freeze_count() < worker._GROWN * first + 3 * worker._MANY
    nodes = [Node() for _ in range(worker._MANY * 2 + first // 2)]
    dead = weakref.ref(nodes[0])
    set_aside()
    nodes.clear()
    tasks(set_aside)
    assert dead() is None
