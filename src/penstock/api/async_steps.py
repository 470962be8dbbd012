"""Steps that ask other systems, as methods of a stream."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from penstock.config import LookupCache, Retry
from penstock.errors import PlanError
from penstock.functions import AsyncFunction, FlatMapFunction, MapFunction
from penstock.plan.definition import Definition, ErrorPolicy
from penstock.runtime.awaited.async_map import AsyncMap
from penstock.runtime.awaited.lookup_join import LookupJoin
from penstock.runtime.awaited.terms import CallTerms
from penstock.timing.durations import Duration, to_ms

if TYPE_CHECKING:
    from penstock.api.stream import DataStream

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
V = TypeVar("V")


class AsyncSteps(Generic[T]):
    """What a stream has of them."""

    if TYPE_CHECKING:

        def _then(
            self, definition: Definition, name: str | None, label: str, previous_names: Sequence[str] = ()
        ) -> DataStream[Any]: ...

    @overload
    def async_map(
        self,
        function: Callable[[T], Awaitable[U]] | AsyncFunction[T, U],
        *,
        ordered: bool = True,
        capacity: int = 100,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        batch: None = None,
        threads: Literal[False] = False,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[U]: ...

    @overload
    def async_map(
        self,
        function: Callable[[list[T]], Awaitable[Sequence[U]]] | AsyncFunction[list[T], Sequence[U]],
        *,
        ordered: bool = True,
        capacity: int = 100,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        batch: int,
        threads: Literal[False] = False,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[U]: ...

    @overload
    def async_map(
        self,
        function: Callable[[T], U] | MapFunction[T, U],
        *,
        ordered: bool = True,
        capacity: int = 100,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        batch: None = None,
        threads: Literal[True],
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[U]: ...

    @overload
    def async_map(
        self,
        function: Callable[[list[T]], Sequence[U]] | MapFunction[list[T], Sequence[U]],
        *,
        ordered: bool = True,
        capacity: int = 100,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        batch: int,
        threads: Literal[True],
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[U]: ...

    def async_map(
        self,
        function: Any,
        *,
        ordered: bool = True,
        capacity: int = 100,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        batch: int | None = None,
        threads: bool = False,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[Any]:
        """One record out for each record in, by a coroutine: many are awaited at once.

        - `ordered`: records go on in the order in which they came; if not, as they are answered, between the same watermarks.
        - `capacity`: how many calls there may be at once, in each task. While there are so many, nothing more is read.
        - `timeout`: for all attempts together. What is not answered in time is an error, or what the `timeout` method of an
          `AsyncFunction` says.
        - `batch`: the function gets a list of up to so many records, and returns a list of as many.
        - `threads`: the function is not a coroutine, and is called in `capacity` threads.

        >>> import asyncio
        >>> from penstock import StreamEnvironment
        >>> async def price(item):
        ...     await asyncio.sleep(0.01)
        ...     return item, len(item)
        >>> items = StreamEnvironment(executor="inline", parallelism=1).from_collection(["tea", "milk"])
        >>> items.async_map(price, capacity=20, timeout=5).execute_and_collect()
        [('tea', 3), ('milk', 4)]
        """
        terms = _terms(ordered, capacity, timeout, retry, batch, threads)
        _check(function, "async_map")
        return self._then(AsyncMap(what="async_map", body=function, terms=terms, errors=errors), name, "async_map")

    @overload
    def async_flat_map(
        self,
        function: Callable[[T], Awaitable[Iterable[U] | None]] | Callable[[T], AsyncIterable[U]] | AsyncFunction[T, Iterable[U]],
        *,
        ordered: bool = True,
        capacity: int = 100,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        threads: Literal[False] = False,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[U]: ...

    @overload
    def async_flat_map(
        self,
        function: Callable[[T], Iterable[U] | None] | FlatMapFunction[T, U],
        *,
        ordered: bool = True,
        capacity: int = 100,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        threads: Literal[True],
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[U]: ...

    def async_flat_map(
        self,
        function: Any,
        *,
        ordered: bool = True,
        capacity: int = 100,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        threads: bool = False,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[Any]:
        """Any number of records out for each record in, by a coroutine that returns them, as a list or the like. For the rest as
        `async_map`."""
        terms = _terms(ordered, capacity, timeout, retry, None, threads)
        _check(function, "async_flat_map")
        return self._then(AsyncMap(what="async_flat_map", body=function, terms=terms, errors=errors), name, "async_flat_map")

    @overload
    def lookup_join(
        self,
        key: str | int | tuple[str | int, ...] | Callable[[T], K],
        lookup: Callable[[list[K]], Awaitable[Mapping[K, V]]] | AsyncFunction[list[K], Mapping[K, V]],
        *,
        how: Literal["inner"] = "inner",
        join: None = None,
        cache: LookupCache | None = None,
        batch: int = 100,
        ordered: bool = True,
        capacity: int = 10,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        threads: Literal[False] = False,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[tuple[T, V]]: ...

    @overload
    def lookup_join(
        self,
        key: str | int | tuple[str | int, ...] | Callable[[T], K],
        lookup: Callable[[list[K]], Awaitable[Mapping[K, V]]] | AsyncFunction[list[K], Mapping[K, V]],
        *,
        how: Literal["left"],
        join: None = None,
        cache: LookupCache | None = None,
        batch: int = 100,
        ordered: bool = True,
        capacity: int = 10,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        threads: Literal[False] = False,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[tuple[T, V | None]]: ...

    @overload
    def lookup_join(
        self,
        key: str | int | tuple[str | int, ...] | Callable[[T], K],
        lookup: Any,
        *,
        how: Literal["inner", "left"] = "inner",
        join: Callable[[T, Any], U],
        cache: LookupCache | None = None,
        batch: int = 100,
        ordered: bool = True,
        capacity: int = 10,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        threads: bool = False,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[U]: ...

    @overload
    def lookup_join(
        self,
        key: str | int | tuple[str | int, ...] | Callable[[T], K],
        lookup: Callable[[list[K]], Mapping[K, V]] | MapFunction[list[K], Mapping[K, V]],
        *,
        how: Literal["inner", "left"] = "inner",
        join: None = None,
        cache: LookupCache | None = None,
        batch: int = 100,
        ordered: bool = True,
        capacity: int = 10,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        threads: Literal[True],
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[tuple[T, V | None]]: ...

    def lookup_join(
        self,
        key: Any,
        lookup: Any,
        *,
        how: Literal["inner", "left"] = "inner",
        join: Callable[[Any, Any], Any] | None = None,
        cache: LookupCache | None = None,
        batch: int = 100,
        ordered: bool = True,
        capacity: int = 10,
        timeout: Duration | None = None,
        retry: Retry | None = None,
        threads: bool = False,
        name: str | None = None,
        errors: ErrorPolicy = "fail",
    ) -> DataStream[Any]:
        """Join each record with what another system has for its key: `(record, found)`, or what `join` makes of the two.

        - `key`: a field, several, or a function. What has no key (None) has no match.
        - `lookup`: a coroutine from a list of up to `batch` keys, each of them once, to a mapping of what there is for them.
        - `how`: "inner" leaves records without a match out; "left" joins them with None.
        - `cache`: what is kept of the answers; without it every batch asks again.

        >>> from penstock import StreamEnvironment
        >>> async def names(ids):
        ...     return {id: {1: "Ann", 2: "Bob"}[id] for id in ids if id < 3}
        >>> orders = StreamEnvironment(executor="inline", parallelism=1).from_collection([(1, "tea"), (3, "milk")])
        >>> orders.lookup_join(0, names, how="left", join=lambda order, name: (order[1], name)).execute_and_collect()
        [('tea', 'Ann'), ('milk', None)]
        """
        _check(lookup, "lookup_join")
        given: Any = how
        if given not in ("inner", "left"):
            raise PlanError(f"lookup_join(how={how!r})", hint='choose "inner" or "left"')
        fields = key if isinstance(key, tuple) else (key,)
        if not callable(key) and (not fields or not all(type(field) in (str, int) for field in fields)):
            raise PlanError(
                f"lookup_join({key!r}, ...): this is no key", hint='for example "user", ("shop", "item") or a function'
            )
        if cache is not None and not isinstance(cache, LookupCache):
            raise PlanError(f"lookup_join(cache={cache!r})", hint="for example cache=LookupCache(size=10_000, ttl=60)")
        terms = _terms(ordered, capacity, timeout, retry, batch, threads)
        definition = LookupJoin(selector=key, body=lookup, how=how, join=join, cache=cache, terms=terms, errors=errors)
        return self._then(definition, name, "lookup_join")


def _terms(
    ordered: bool, capacity: int, timeout: Duration | None, retry: Retry | None, batch: int | None, threads: bool
) -> CallTerms:
    timeout_ms = None if timeout is None else to_ms(timeout, what="timeout")
    return CallTerms(ordered=ordered, capacity=capacity, timeout_ms=timeout_ms, retry=retry, batch=batch, threads=threads)


def _check(function: Any, what: str) -> None:
    if isinstance(function, type) and issubclass(function, AsyncFunction | MapFunction | FlatMapFunction):
        raise PlanError(f"{what}({function.__name__}): this is a class", hint=f"give an instance: {function.__name__}()")
