"""State as it is declared on a function class.

The declaration is a value: planner, manifest and upgrade check read it without running anything. In a worker each declared
name is bound, on the function's instance, to a handle with the same methods (see `penstock.state.overlay.handles`) that works
on the current key.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack

from penstock.errors import ConfigError, PlanError, StateError
from penstock.functions import AggregateFunction, Call, aggregate_calls, call_of
from penstock.ids import Milliseconds
from penstock.state.encoding.aliases import Aliases
from penstock.state.encoding.keys import KeyCodec, key_codec
from penstock.timing.durations import to_ms

T = TypeVar("T")
K = TypeVar("K")
I = TypeVar("I")  # noqa: E741 - the input
O = TypeVar("O")  # noqa: E741 - the output


@dataclass(frozen=True, slots=True)
class Ttl:
    """How long an entry lives after it was written (or read, with `refresh="read"`).

    `time="event"` counts by the watermark, `time="processing"` by the clock. An expired entry is never returned, and is removed
    soon after.
    """

    after: timedelta
    time: Literal["event", "processing"] = "processing"
    refresh: Literal["write", "read"] = "write"

    def __post_init__(self) -> None:
        if to_ms(self.after, what="the ttl of a state") == 0:
            raise ConfigError("the ttl of a state is zero", hint="omit ttl= to keep the state forever")

    @property
    def ms(self) -> Milliseconds:
        return to_ms(self.after)


class Evolving(TypedDict, total=False):
    """What is left of former programs, and how to go on with it.

    `aliases`: former names of fields, `{"zip": "postcode"}`; `migrate`: makes a value of the declared type of a stored one (of an
    element of a list, of a value of a map); `previous_names`: what the state was called.
    """

    aliases: Mapping[str, str]
    migrate: Callable[[Any], Any]
    previous_names: Sequence[str]


class State:
    """What all kinds of state have in common. `queryable`: whoever may ask the job's server may read it."""

    kind = "state"
    scope: Literal["keyed", "broadcast", "operator"] = "keyed"
    """Whose it is: of each key; of the step, the same in all its partitions; of each partition of the step."""
    per_window = False

    def __init__(
        self,
        value_type: Any,
        ttl: Ttl | timedelta | None,
        codec: Any = None,
        evolving: Evolving | None = None,
        queryable: bool = False,
    ) -> None:
        self.value_type = value_type
        self.queryable = queryable
        self.ttl = Ttl(ttl) if isinstance(ttl, timedelta) else ttl
        self.codec = codec
        known = evolving or {}
        unknown = known.keys() - Evolving.__annotations__.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__}() has no argument {min(unknown)!r}")
        self.aliases = Aliases(known.get("aliases"))
        self.migrate = known.get("migrate")
        self.previous_names = names_of(known.get("previous_names", ()))
        if self.migrate is not None and not callable(self.migrate):
            raise PlanError(f"migrate={self.migrate!r}: this is not a function", hint="give a function of the stored value")

    def clear(self) -> None:
        raise _unbound()


def names_of(previous: Sequence[str]) -> tuple[str, ...]:
    """`previous_names=`, checked."""
    if isinstance(previous, str) or not all(previous) or not all(isinstance(name, str) for name in previous):
        raise PlanError(f"previous_names={previous!r}", hint='give a tuple of names: previous_names=("old",)')
    return tuple(previous)


def _unbound() -> StateError:
    return StateError(
        "state was used outside of a running step",
        hint="declare it on the function's class and use it as self.<name> inside process() and on_timer()",
    )


class ValueState(State, Generic[T]):
    """One value for each key. `.value` is None (or `default`) until it is updated."""

    kind = "value"

    def __init__(
        self,
        value_type: Any = None,
        default: T | None = None,
        *,
        ttl: Ttl | timedelta | None = None,
        codec: Any = None,
        queryable: bool = False,
        **evolving: Unpack[Evolving],
    ) -> None:
        super().__init__(value_type, ttl, codec, evolving, queryable)
        self.default = default

    def fresh_default(self) -> T | None:
        return copy.deepcopy(self.default)

    @property
    def value(self) -> T:
        raise _unbound()

    def update(self, value: T) -> None:
        raise _unbound()


class ListState(State, Generic[T]):
    """A list for each key, made for appending."""

    kind = "list"

    def __init__(
        self,
        value_type: Any = None,
        *,
        ttl: Ttl | timedelta | None = None,
        codec: Any = None,
        queryable: bool = False,
        **evolving: Unpack[Evolving],
    ) -> None:
        super().__init__(value_type, ttl, codec, evolving, queryable)

    def add(self, value: T) -> None:
        raise _unbound()

    append = add

    def extend(self, values: Iterable[T]) -> None:
        raise _unbound()

    def update(self, values: Iterable[T]) -> None:
        raise _unbound()

    def __iter__(self) -> Iterator[T]:
        raise _unbound()

    def __len__(self) -> int:
        raise _unbound()


class MapState(State, Generic[K, T]):
    """A map for each key; its entries are read and written one by one."""

    kind = "map"

    def __init__(
        self,
        key_type: Any = None,
        value_type: Any = None,
        *,
        ttl: Ttl | timedelta | None = None,
        codec: Any = None,
        queryable: bool = False,
        **evolving: Unpack[Evolving],
    ) -> None:
        super().__init__(value_type, ttl, codec, evolving, queryable)
        self.key_type = key_type

    def get(self, key: K, default: T | None = None) -> T | None:
        raise _unbound()

    def __getitem__(self, key: K) -> T:
        raise _unbound()

    def __setitem__(self, key: K, value: T) -> None:
        raise _unbound()

    def __delitem__(self, key: K) -> None:
        raise _unbound()

    def __contains__(self, key: K) -> bool:
        raise _unbound()

    def __iter__(self) -> Iterator[K]:
        raise _unbound()

    def __len__(self) -> int:
        raise _unbound()

    def put(self, key: K, value: T) -> None:
        raise _unbound()

    def remove(self, key: K) -> None:
        raise _unbound()

    def keys(self) -> Iterator[K]:
        raise _unbound()

    def values(self) -> Iterator[T]:
        raise _unbound()

    def items(self) -> Iterator[tuple[K, T]]:
        raise _unbound()


class BroadcastMapState(MapState[K, T]):
    """A map of a step with a broadcast input: the same in all partitions. `process_broadcast` changes it, the other methods of
    the function only read it."""

    scope = "broadcast"

    def __init__(self, key_type: Any = None, value_type: Any = None, *, codec: Any = None, **evolving: Unpack[Evolving]) -> None:
        super().__init__(key_type, value_type, codec=codec, **evolving)


class OperatorListState(State, Generic[T]):
    """A list of each partition of a step, whatever the keys. When the parallelism changes its elements are dealt out anew;
    `united`: every partition gets those of all."""

    kind = "elements"
    scope = "operator"

    def __init__(
        self,
        value_type: Any = None,
        *,
        united: bool = False,
        codec: Any = None,
        queryable: bool = False,
        **evolving: Unpack[Evolving],
    ) -> None:
        super().__init__(value_type, None, codec, evolving, queryable)
        self.united = united

    def add(self, value: T) -> None:
        raise _unbound()

    append = add

    def extend(self, values: Iterable[T]) -> None:
        raise _unbound()

    def update(self, values: Iterable[T]) -> None:
        raise _unbound()

    def __iter__(self) -> Iterator[T]:
        raise _unbound()

    def __len__(self) -> int:
        raise _unbound()


class ReducingState(State, Generic[T]):
    """One value for each key: all values added, combined by `function`."""

    kind = "reducing"

    def __init__(
        self,
        value_type: Any,
        function: Callable[[T, T], T],
        *,
        ttl: Ttl | timedelta | None = None,
        codec: Any = None,
        queryable: bool = False,
        **evolving: Unpack[Evolving],
    ) -> None:
        super().__init__(value_type, ttl, codec, evolving, queryable)
        self.function = function

    @property
    def value(self) -> T | None:
        raise _unbound()

    def add(self, value: T) -> None:
        raise _unbound()


class AggregatingState(State, Generic[I, O]):
    """An accumulator for each key: values go in, a result comes out."""

    kind = "aggregating"

    def __init__(
        self,
        aggregate: AggregateFunction[I, Any, O],
        accumulator_type: Any = None,
        *,
        ttl: Ttl | timedelta | None = None,
        codec: Any = None,
        queryable: bool = False,
        **evolving: Unpack[Evolving],
    ) -> None:
        super().__init__(accumulator_type, ttl, codec, evolving, queryable)
        self.aggregate = aggregate

    @property
    def value(self) -> O | None:
        raise _unbound()

    def add(self, value: I) -> None:
        raise _unbound()


def value_state(given: Any, default: Any = None) -> ValueState[Any]:
    """A `state_type=`: a type, or a `ValueState` of it that says more."""
    if not isinstance(given, State):
        return ValueState(given, default)
    if not isinstance(given, ValueState) or given.default is not None:
        raise PlanError(f"state_type is a {type(given).__name__}", hint="give a type, or a ValueState of it without a default")
    made = copy.copy(given)
    made.default = default
    return made


def sub_keys_of(state: State | None) -> KeyCodec | None:
    """What encodes the keys that a value of the state has itself, such as those of a map; None if it has none."""
    return key_codec(state.key_type) if isinstance(state, MapState) else None


def state_calls(function: Any) -> tuple[Call, ...]:
    """How the functions that declared states were given will be called."""
    found: list[Call] = []
    for state in declared_states(function).values():
        if isinstance(state, ReducingState):
            found.append(call_of(state.function, "reduce", "left", "right"))
        elif isinstance(state, AggregatingState):
            found += aggregate_calls(state.aggregate)
        if state.migrate is not None:
            found.append(call_of(state.migrate, "migrate", "value"))
    return tuple(found)


def declared_states(function: Any) -> dict[str, State]:
    """The states declared on a function's class, or set on the instance by its constructor, by name."""
    found: dict[str, State] = {}
    for cls in reversed(type(function).__mro__):
        found.update({name: value for name, value in vars(cls).items() if isinstance(value, State)})
    found.update({name: value for name, value in getattr(function, "__dict__", {}).items() if isinstance(value, State)})
    return dict(sorted(found.items()))
