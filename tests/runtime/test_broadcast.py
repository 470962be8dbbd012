"""Functions with broadcast state: who may change it, what a record without a key may do, errors and side outputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock import DataStream, ListState, MapState, OutputTag, ReducingState, StreamEnvironment, ValueState
from penstock.config import NO_RESTART
from penstock.errors import StateError, UserCodeError
from penstock.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from penstock.plan.definition import ErrorPolicy
from penstock.state import BroadcastMapState

TOLD = OutputTag[Any]("told")


class Ruled(KeyedBroadcastProcessFunction[str, str, str, Any]):
    """Does what the records say."""

    rules: BroadcastMapState[str, list[int]] = BroadcastMapState(str, list[int])
    seen = ValueState(int, 0)
    words: ListState[str] = ListState(str)
    by_size: MapState[int, int] = MapState(int, int)
    longest: ReducingState[int] = ReducingState(int, max)

    def process(self, value: str, ctx: Any) -> Iterator[Any]:
        self.seen.update(self.seen.value + 1)
        self.words.add(value)
        self.by_size[len(value)] = 1
        self.longest.add(len(value))
        if value == "write":
            self.rules["x"] = [1]
        elif value == "clear":
            self.rules.clear()
        elif value == "forget":
            self.seen.clear()
            self.words.clear()
        yield value, [*self.rules.items()]

    def process_broadcast(self, value: str, ctx: Any) -> Iterator[Any]:
        if value == "fail":
            self.rules["half"] = [1]
            raise ValueError("as it was told")
        if value.startswith("own "):
            yield getattr(self, value[4:]), self._read(value[4:])
        elif value.startswith("all "):
            found: list[Any] = []
            ctx.apply_to_keyed_state(getattr(self, value[4:]), lambda key, state: found.append((key, self.seen.value)))
            yield value, sorted(found)
        elif value == "nothing":
            ctx.apply_to_keyed_state(self.rules, print)
        else:
            self.rules.put(value, [])
            self.rules[value].append(len(self.rules))
            ctx.output(TOLD, value)

    def _read(self, name: str) -> Any:
        return self.seen.value if name == "seen" else list(self.words) if name == "words" else len(self.by_size)


def ruled(words: list[str], rules: list[str], errors: ErrorPolicy = "fail", **settings: Any) -> DataStream[Any]:
    """The words come first."""
    env = StreamEnvironment("ruled", executor="inline", restart=NO_RESTART, **settings)
    given = env.from_collection(words, name="words").key_by(lambda word: word[0])
    return given.connect(env.from_collection(rules, name="rules").broadcast()).process(Ruled(), name="ruled", errors=errors)


def test_who_reads_sees_what_was_put_in_order_and_only_that() -> None:
    env = StreamEnvironment("ruled", executor="inline", restart=NO_RESTART, max_records_per_epoch=4)
    rules = env.from_collection(["b", "a"], name="rules")
    words = env.from_collection(["w1", "w2"], name="words").union(env.from_collection(["z"] * 5, name="later"))
    rows = words.key_by(lambda word: word[0]).connect(rules.broadcast()).process(Ruled(), name="ruled").execute_and_collect()
    assert rows[-1] == ("z", [("a", [2]), ("b", [1])])


@pytest.mark.parametrize("word", ["write", "clear"])
def test_who_may_only_read_cannot_write(word: str) -> None:
    with pytest.raises(StateError, match="state 'rules' of step 'ruled' is broadcast state, and can only be read here"):
        ruled([word], []).execute_and_collect()


@pytest.mark.parametrize("name", ["seen", "words", "by_size"])
def test_a_broadcast_record_has_no_key(name: str) -> None:
    with pytest.raises(StateError, match="a broadcast record has no key: state that is kept by key") as caught:
        ruled(["one"], [f"own {name}"]).execute_and_collect()
    assert "record: 'own " in caught.value.detail


def test_apply_to_keyed_state_wants_a_keyed_state() -> None:
    with pytest.raises(StateError, match="apply_to_keyed_state takes a keyed state of the function, not"):
        ruled([], ["nothing"]).execute_and_collect()


@pytest.mark.parametrize("records", [1, 100])
@pytest.mark.parametrize("name", ["seen", "words", "by_size", "longest"])
def test_all_keys_that_have_something_are_visited(name: str, records: int) -> None:
    """Whether what they have is committed or of this epoch."""
    words = ["one", "two", "three", "only", "forget"]
    rows = ruled(words, ["first"] * 5 + [f"all {name}"], parallelism=2, max_records_per_epoch=records).execute_and_collect()
    visited = sorted(one for what, found in rows if what == f"all {name}" for one in found)
    left = [] if name in ("seen", "words") else [("f", 0)]
    assert visited == [*left, ("o", 2), ("t", 2)]


def test_errors_of_broadcast_records() -> None:
    with pytest.raises(UserCodeError, match=r"step 'ruled': ValueError: as it was told \(a broadcast record\)") as caught:
        ruled([], ["fail"]).execute_and_collect()
    assert "Ruled" in caught.value.detail
    rows = ruled([], ["fail", "a"], "dead_letter", parallelism=1).dead_letters().execute_and_collect()
    assert [(letter.record, letter.error) for letter in rows] == [("fail", "ValueError: as it was told")]
    assert ruled([], ["fail", "all seen"], "skip", parallelism=1).execute_and_collect() == [("all seen", [])]


def test_side_outputs_of_broadcast_records() -> None:
    assert ruled([], ["a", "b"], parallelism=1).side_output(TOLD).execute_and_collect() == ["a", "b"]


class Loose(BroadcastProcessFunction[str, str, str]):
    rules: BroadcastMapState[str, int] = BroadcastMapState(str, int)

    def process(self, value: str, ctx: Any) -> Iterator[str]:
        self.rules[value] = 1
        yield value

    def process_broadcast(self, value: str, ctx: Any) -> None:
        self.rules[value] = 1


def test_who_may_only_read_cannot_write_without_keys_either() -> None:
    env = StreamEnvironment("loose", executor="inline", restart=NO_RESTART)
    rules = env.from_collection(["a"], name="rules").broadcast()
    with pytest.raises(StateError, match="state 'rules' of step 'loose' is broadcast state, and can only be read here"):
        env.from_collection(["b"], name="words").connect(rules).process(Loose(), name="loose").execute_and_collect()
