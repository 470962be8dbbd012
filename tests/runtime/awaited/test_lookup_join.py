"""Lookup joins against a plain one: whatever is cached, asked together, late or wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import ProcessFunction, RestartPolicy, StreamEnvironment
from penstock.config import NO_RESTART, LookupCache, Retry
from penstock.errors import PlanError, ReturnedValueError, UserCodeError
from penstock.runtime.awaited.lookup_cache import ABSENT, UNKNOWN, KeptAnswers
from penstock.testing import CollectSink, End, Record, ScriptedSource, Watermark, execute_inline, run_inline, scripted_watermarks

TABLE = {number: f"row {number}" for number in range(0, 12, 2)}


class Table:
    """A service with a table; notes what it was asked for."""

    def __init__(self, fails: int = 0) -> None:
        self.asked: list[list[int]] = []
        self.loading: set[int] = set()
        self.fails = fails

    async def __call__(self, keys: list[int]) -> dict[int, str]:
        assert self.loading.isdisjoint(keys), "asked for while it is being asked for"
        self.loading.update(keys)
        try:
            for _ in range(sum(keys) % 3):
                await asyncio.sleep(0)
            if self.fails:
                self.fails -= 1
                raise ConnectionError("gone")
            self.asked.append(keys)
            return {key: TABLE[key] for key in keys if key in TABLE}
        finally:
            self.loading.difference_update(keys)


class Seen(ProcessFunction[Any, Any]):
    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value, ctx.timestamp, ctx.current_watermark


RECORDS = st.lists(st.one_of(st.tuples(st.none() | st.integers(0, 11), st.integers(0, 9)), st.just("watermark")), max_size=20)
CACHES = st.none() | st.builds(LookupCache, size=st.integers(1, 8), ttl=st.sampled_from([None, 0.001, 60]), absent=st.booleans())


@given(
    RECORDS,
    st.sampled_from([None, 1, 3]),
    st.sampled_from(["inner", "left"]),
    CACHES,
    st.integers(1, 5),
    st.booleans(),
    st.integers(0, 2),
)
def test_as_a_plain_join(
    drawn: list[Any], cut: int | None, how: Any, cache: LookupCache | None, batch: int, ordered: bool, fails: int
) -> None:
    script: list[Any] = []
    for number, one in enumerate(drawn):
        script.append(Watermark(number) if one == "watermark" else Record(one, number))

    def run(step: Any) -> list[Any]:
        env = StreamEnvironment("lookups", parallelism=1, restart=RestartPolicy(attempts=5, first_delay=0))
        source = env.from_source(ScriptedSource([*script, End()], cut=cut), watermarks=scripted_watermarks(), name="in")
        return run_inline(step(source).process(Seen()))

    def plain(record: tuple[int | None, int]) -> list[Any]:
        found = None if record[0] is None else TABLE.get(record[0])
        return [(record, found)] if found is not None or how == "left" else []

    table, retry = Table(fails), Retry(attempts=2, first_delay=0)
    found = run(lambda s: s.lookup_join(0, table, how=how, cache=cache, batch=batch, capacity=2, ordered=ordered, retry=retry))
    expected = run(lambda s: s.flat_map(plain))
    assert found == expected if ordered else sorted(found, key=repr) == sorted(expected, key=repr)
    assert all(len(keys) == len(set(keys)) <= batch for keys in table.asked)


def orders(records: list[Any], **settings: Any) -> Any:
    env = StreamEnvironment("lookups", parallelism=1, restart=NO_RESTART, **settings)
    return env.from_collection(records, name="in")


def test_the_cache_is_kept_from_epoch_to_epoch() -> None:
    table = Table()
    records = [(number % 4, number) for number in range(40)]
    stream = orders(records, max_records_per_epoch=4, first_records_per_epoch=4)
    joined = stream.lookup_join(0, table, how="left", cache=LookupCache(), name="join")
    joined.sink_to(CollectSink())
    result = execute_inline(joined._env)
    assert result.counters["join"] | {"call-ms": 0} == {
        "calls": 1,
        "call-ms": 0,
        "cache-hits": 36,
        "cache-misses": 4,
        "cache-evictions": 0,
    }
    assert table.asked == [[0, 1, 2, 3]]


def test_keys_of_several_fields_and_functions() -> None:
    async def rows(keys: list[tuple[str, int]]) -> dict[tuple[str, int], str]:
        return {key: f"{key[0]}{key[1]}" for key in keys}

    records = [{"shop": "a", "item": 1}, {"shop": None, "item": 2}]
    by_fields = orders(records).lookup_join(("shop", "item"), rows, how="left")
    assert [found for _, found in run_inline(by_fields)] == ["a1", None]
    by_function = orders([("a", 1)]).lookup_join(lambda order: order, rows, join=lambda order, found: found)
    assert run_inline(by_function) == ["a1"]


def test_in_threads() -> None:
    def rows(keys: list[int]) -> dict[int, str]:
        return {key: TABLE[key] for key in keys if key in TABLE}

    assert run_inline(orders([(1, "x"), (2, "y")]).lookup_join(0, rows, threads=True)) == [((2, "y"), "row 2")]


def test_errors_by_record() -> None:
    """What the key function or `join` raises is of one record; what the lookup raises is of all that wait for it."""

    async def rows(keys: list[int]) -> dict[int, int]:
        if 9 in keys:
            raise ConnectionError("gone")
        return {key: 10 // key if key else 0 for key in keys}

    records = [(1,), (), (0,), (9,), (2,)]
    joined = orders(records).lookup_join(
        lambda record: record[0], rows, join=lambda record, found: 10 // found, batch=1, errors="dead_letter"
    )
    dead = CollectSink()
    joined.dead_letters().sink_to(dead)
    assert run_inline(joined) == [1, 2]
    kinds = sorted(letter.error.split(":")[0] for letter in dead.results())
    assert kinds == ["ConnectionError", "IndexError", "ZeroDivisionError"]


def test_the_step_fails() -> None:
    with pytest.raises(UserCodeError, match="step 'join': ConnectionError: gone") as caught:
        run_inline(orders([(4, "x")]).lookup_join(0, Table(fails=1), name="join"))
    assert "record: (4, 'x')" in caught.value.detail
    with pytest.raises(UserCodeError, match=r"step 'join': TypeError: unhashable .* \(the key\)"):
        run_inline(orders([([],)]).lookup_join(0, Table(), name="join"))


def test_a_lookup_that_returns_no_mapping() -> None:
    async def rows(keys: list[int]) -> Any:
        return [TABLE[key] for key in keys]

    with pytest.raises(ReturnedValueError, match="returned a list, where a mapping is expected"):
        run_inline(orders([(2, "x")]).lookup_join(0, rows, errors="skip"))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((1.5,), {}, "this is no key"),
        ((0,), {"how": "outer"}, "how='outer'"),
        ((0,), {"cache": 100}, "cache=100"),
        ((0,), {"batch": 0}, "batch=0"),
        ((0,), {"join": lambda record: record}, r"cannot be called as join\(value, found\)"),
    ],
)
def test_refused_when_it_is_built(arguments: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        orders([]).lookup_join(*arguments, Table(), **options)


def test_what_is_kept() -> None:
    now = 0.0
    kept = KeptAnswers(LookupCache(size=2, ttl=10, absent=False), lambda: now)
    kept.keep("a", 1)
    kept.keep("gone", ABSENT)
    kept.keep("b", 2)
    assert (kept.find("a"), kept.find("gone")) == (1, UNKNOWN)
    kept.keep("c", 3)  # b was not used for longest
    assert (kept.find("a"), kept.find("b"), kept.find("c"), len(kept)) == (1, UNKNOWN, 3, 2)
    now = 10.0
    assert (kept.find("a"), len(kept), kept.take_evicted(), kept.take_evicted()) == (UNKNOWN, 1, 2, 0)
