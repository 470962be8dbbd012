"""Classes of the user's, where a program may use them."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from penstock import StreamEnvironment
from penstock.errors import PlanError
from penstock.functions import MapFunction


def test_a_class_is_a_function_like_any_other() -> None:
    env = StreamEnvironment("classes", executor="inline", parallelism=1)
    assert env.from_collection(["1", "2"]).map(int).execute_and_collect() == [1, 2]


def test_a_function_class_must_be_an_instance() -> None:
    class Twice(MapFunction[int, int]):
        def map(self, value: int) -> int:
            return 2 * value

    env = StreamEnvironment("classes", executor="inline", parallelism=1)
    with pytest.raises(PlanError, match="this is a class"):
        env.from_collection([1]).map(Twice)  # type: ignore[arg-type,call-overload,unused-ignore]


def test_records_of_a_class_that_msgspec_has_seen_cross_an_exchange() -> None:
    @dataclasses.dataclass
    class Local:
        key: str

    msgspec.json.decode(b'{"key": "a"}', type=Local)  # leaves a cache in the class, which cannot be pickled
    env = StreamEnvironment("classes", executor="inline", parallelism=2)
    records = env.from_collection([Local("a"), Local("b")]).rebalance().map(lambda record: record).execute_and_collect()
    assert sorted(record.key for record in records) == ["a", "b"]
