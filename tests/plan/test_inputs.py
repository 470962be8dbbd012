"""The inputs of a step: how many, keyed or not, by keys of one type; a wrong pairing is refused when the step is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from penstock import StreamEnvironment
from penstock.errors import PlanError
from penstock.functions import KeyedCoProcessFunction
from penstock.plan.definition import Definition, Takes
from penstock.runtime.operators.co_process import KeyedCoProcess
from penstock.runtime.operators.stateless import Stateless
from penstock.runtime.operators.union import Union


class Both(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def process1(self, value: Any, ctx: Any) -> None:
        """Nothing comes of it."""

    def process2(self, value: Any, ctx: Any) -> None:
        """Nothing comes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules(Definition):
    """Records that are not keyed, and rules for all of them."""

    @property
    def kind(self) -> str:
        return "rules"

    def takes(self, given: int) -> tuple[Takes, ...]:
        return Takes(keyed=False), Takes(broadcast=True)


def refused(definition: Definition, *streams: Any) -> str:
    with pytest.raises(PlanError) as caught:
        streams[0]._env._add(definition, *(stream._input() for stream in streams), name="met", label="met")
    return f"{caught.value.what} / {caught.value.detail} / {caught.value.hint}"


def streams(count: int = 2) -> list[Any]:
    env = StreamEnvironment("inputs")
    return [env.from_collection([1], name=f"in-{number}") for number in range(count)]


ALIKE = "key both sides alike, a.key_by(...) and b.key_by(...), or neither"


def test_how_many() -> None:
    first, second = streams()
    keyed = [stream.key_by(lambda value: value) for stream in (first, second)]
    exactly = "a step is given exactly the streams that it is defined for"
    assert refused(KeyedCoProcess(body=Both()), keyed[0]) == (
        f"step 'met' (keyed co-process) takes 2 inputs, not 1 /  / {exactly}"
    )
    assert refused(KeyedCoProcess(body=Both()), *keyed, keyed[0]) == (
        f"step 'met' (keyed co-process) takes 2 inputs, not 3 /  / {exactly}"
    )
    assert refused(Stateless(what="map", body=str), first, second) == f"step 'met' (map) takes 1 input, not 2 /  / {exactly}"


def test_one_side_is_keyed_and_the_other_is_not() -> None:
    first, second = streams()
    message = refused(KeyedCoProcess(body=Both()), first.key_by(lambda value: value), second)
    assert message == f"step 'met' (keyed co-process): input 2 must be keyed / it is not exchanged / {ALIKE}"
    message = refused(KeyedCoProcess(body=Both()), first.rebalance(), second.key_by(0))
    assert message == f"step 'met' (keyed co-process): input 1 must be keyed / it is exchanged by rebalance / {ALIKE}"


def test_key_types_that_differ() -> None:
    first, second = streams()
    sides = first.key_by(lambda value: value, key_type=int), second.key_by(lambda value: value, key_type=str)
    assert refused(KeyedCoProcess(body=Both(), key_type=int), *sides) == (
        "step 'met' (keyed co-process): input 2 has keys of another type / keys of this input: str; of the step: int / "
        "give the same key_type= to key_by(...) of every input, or to none: keys of two types are never the same key"
    )
    sides = first.key_by(lambda value: value), second.key_by(lambda value: value, key_type=tuple[int, str])
    assert "keys of this input: tuple[int, str]; of the step: no key_type=" in refused(KeyedCoProcess(body=Both()), *sides)


def test_a_broadcast_side() -> None:
    first, second = streams()
    assert refused(Rules(), first, second) == (
        "step 'met' (rules): input 2 must be broadcast / it is not exchanged / call broadcast() on it"
    )
    assert refused(Rules(), first.broadcast(), second.broadcast()) == (
        "step 'met' (rules): input 1 may not be broadcast / it is exchanged by broadcast / leave broadcast() out"
    )
    assert refused(Rules(), first.key_by(0), second.broadcast()) == (
        f"step 'met' (rules): input 1 may not be keyed / it is exchanged by key_by 0 / {ALIKE}"
    )


def test_a_union_takes_any_number_but_none() -> None:
    env = streams(1)[0]._env
    with pytest.raises(PlanError, match=r"step 'none' \(union\) takes 1 input, not 0"):
        env._add(Union(), name="none", label="union")


def test_a_function_needs_a_method_for_each_input() -> None:
    class One:
        def process1(self, value: Any, ctx: Any) -> None:
            """There is no process2."""

    with pytest.raises(PlanError, match="is not a KeyedCoProcessFunction") as caught:
        KeyedCoProcess(body=One())
    assert "process1(self, value, ctx) and process2(self, value, ctx)" in caught.value.hint
