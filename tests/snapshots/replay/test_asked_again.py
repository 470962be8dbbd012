"""Replays of steps that ask other systems: they ask again, say so, and show who differs; with a debugger one call at a time."""

from __future__ import annotations

import asyncio
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from penstock import KeyedProcessFunction, RestartPolicy, StreamEnvironment, ValueState, snapshots
from penstock.config import LookupCache, Retry
from penstock.errors import UserCodeError
from penstock.snapshots.replay.watching.debugger import Debugger

PRICES = {"tea": 3, "milk": 2}
asked: list[str] = []


async def price(item: str) -> tuple[str, int]:
    asked.append(item)
    await asyncio.sleep(0)
    cents = PRICES[item]
    return item, cents


async def stock(items: list[str]) -> dict[str, int]:
    return {item: len(item) for item in items if item != "milk"}


class Sum(KeyedProcessFunction[str, Any, int]):
    total = ValueState(int, default=0)

    def process(self, value: Any, ctx: Any) -> list[int]:
        self.total.update(self.total.value + value[1])
        return [self.total.value]


def program(storage: Path, items: list[str], errors: Any = "skip") -> StreamEnvironment:
    env = StreamEnvironment(
        "prices",
        executor="inline",
        parallelism=1,
        storage=str(storage),
        max_records_per_epoch=10,
        restart=RestartPolicy(attempts=0),
        keep=20,
    )
    priced = env.from_collection(items, name="in").async_map(
        price, capacity=2, retry=Retry(attempts=1, first_delay=0), errors=errors, name="price"
    )
    priced.key_by(0).process(Sum(), name="sum").print(name="out")
    priced.lookup_join(0, stock, how="left", cache=LookupCache(), join=lambda row, left: (row, left), name="stock").print(
        name="left"
    )
    return env


ITEMS = ["tea", "milk", "gold", "tea"]


def test_it_asks_again_and_says_so(tmp_path: Path) -> None:
    program(tmp_path, ITEMS).execute()
    asked.clear()
    replayed = snapshots.replay(tmp_path, 2, env=program(tmp_path, ITEMS))
    assert sorted(asked) == ["gold", "gold", "milk", "tea", "tea"]
    assert next(note for note in replayed.notes if "asks another system again" in note).startswith("the step 'price'")
    assert replayed.reproduced
    events = replayed.step("price").events
    assert [(event.value, [one.value for one in event.outputs]) for event in events] == [
        ("tea", [("tea", 3)]),
        ("milk", [("milk", 2)]),
        ("gold", []),
        ("tea", [("tea", 3)]),
    ]
    assert events[2].error == "KeyError: 'gold'"
    assert [[one.value for one in event.outputs] for event in replayed.step("stock").events] == [
        [(("tea", 3), 3)],
        [(("milk", 2), None)],
        [(("tea", 3), 3)],
    ]


def test_another_answer_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, ITEMS).execute()
    monkeypatch.setitem(PRICES, "milk", 5)
    replayed = snapshots.replay(tmp_path, 2, env=program(tmp_path, ITEMS))
    assert replayed.reproduced is False
    found = replayed.verdict.differences
    assert [(one.step, one.key, one.committed, one.replayed) for one in found] == [("sum", "milk", 2, 5)]


def test_an_epoch_that_fails(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match="KeyError: 'gold'"):
        program(tmp_path, ITEMS, "fail").execute()
    replayed = snapshots.replay(f"{tmp_path}@next", env=program(tmp_path, ITEMS, "fail"))
    assert replayed.failed_step == "price"
    assert replayed.failed is not None
    assert replayed.failed.value == "gold"


@pytest.mark.parametrize("step", ["price", "stock"])
def test_a_debugger_in_a_coroutine(tmp_path: Path, step: str) -> None:
    program(tmp_path, ITEMS).execute()
    said = StringIO()
    debugger = Debugger(stdin=StringIO("p 'here'\nc\n"), stdout=said)
    replayed = snapshots.replay(tmp_path, 2, env=program(tmp_path, ITEMS), step=step, debugger=debugger)
    debugger.close()
    assert replayed.reproduced
    assert "'here'" in said.getvalue()
    assert {"price": "asked.append(item)", "stock": "return {item: len(item)"}[step] in said.getvalue()
