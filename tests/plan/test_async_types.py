"""Types flow through steps that ask other systems: mypy reads this file, and each program runs too."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import assert_type

from penstock import DataStream, StreamEnvironment
from penstock.functions import AsyncFunction, MapFunction
from penstock.testing import run_inline


@dataclass(frozen=True)
class User:
    id: int


class Name(AsyncFunction[User, str]):
    async def open(self, context: object) -> None:
        self.prefix = "user"

    async def async_invoke(self, value: User) -> str:
        return f"{self.prefix} {value.id}"


class Length(MapFunction[str, int]):
    def map(self, value: str) -> int:
        return len(value)


async def name(user: User) -> str:
    return f"user {user.id}"


async def names(users: list[User]) -> list[str]:
    return [await name(user) for user in users]


async def letters(text: str) -> AsyncIterator[str]:
    for letter in text:
        yield letter


async def ages(ids: list[int]) -> Mapping[int, float]:
    return {id: id / 2 for id in ids if id % 2}


def users() -> DataStream[User]:
    return StreamEnvironment("types", parallelism=1).from_collection([User(1), User(2)])


def test_one_for_each() -> None:
    assert_type(users().async_map(name), DataStream[str])
    assert_type(users().async_map(Name()), DataStream[str])
    assert_type(users().async_map(names, batch=2), DataStream[str])
    assert_type(users().async_map(name).async_map(Length(), threads=True), DataStream[int])
    assert run_inline(users().async_map(Name()).async_map(Length(), threads=True)) == [6, 6]
    assert run_inline(users().async_map(names, batch=2)) == ["user 1", "user 2"]


def test_any_number_for_each() -> None:
    spelt = users().async_map(name).async_flat_map(letters)
    assert_type(spelt, DataStream[str])
    assert "".join(run_inline(spelt)) == "user 1user 2"


def test_joined() -> None:
    inner = users().lookup_join(lambda user: user.id, ages)
    left = users().lookup_join(lambda user: user.id, ages, how="left")
    assert_type(inner, DataStream[tuple[User, float]])
    assert_type(left, DataStream[tuple[User, float | None]])
    assert run_inline(inner) == [(User(1), 0.5)]
    assert run_inline(left) == [(User(1), 0.5), (User(2), None)]
