from __future__ import annotations

import gc
import itertools
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
    monkeypatch.setattr(worker, "_tasks", itertools.count(1))
    yield
    gc.unfreeze()


def test_what_lives_before_a_task_is_searched_for_cycles_now_and_then_only() -> None:
    node = Node()
    dead = weakref.ref(node)
    worker._set_aside()
    assert gc.get_freeze_count() > 0
    del node
    for _ in range(2, worker._SEARCH_ALL_EVERY):
        worker._set_aside()
        gc.collect()
        assert dead() is not None
    worker._set_aside()
    gc.collect()
    assert dead() is None
