"""Loops: streams that part of their own results come back to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from penstock.api.stream import DataStream
from penstock.compile.loops import behind
from penstock.errors import PlanError
from penstock.plan.schemas import schema_of
from penstock.runtime.operators.loop import LEFTOVERS, LoopHead, LoopTail

T = TypeVar("T")


class Loop(DataStream[T]):
    """The beginning of a loop: its input, and what comes back. Build the body on it, and close it with what is to come back.

    >>> from penstock import StreamEnvironment
    >>> loop = StreamEnvironment(executor="inline").from_collection([6, 11]).iterate()
    >>> halved = loop.filter(lambda n: n % 2 == 0).map(lambda n: n // 2)
    >>> loop.close_with(halved)
    >>> sorted(loop.execute_and_collect())
    [3, 6, 11]
    """

    def close_with(self, feedback: DataStream[T]) -> None:
        """Send these records back to the beginning, where they are taken as new ones are."""
        env, graph = self._env, self._env._graph
        if (tail := self._tail()) is not None:
            raise PlanError(
                f"the loop {self._step!r} is closed already",
                detail=f"with the output of step {graph.nodes[tail].inputs[0].step!r}",
                hint="unite what is to come back: loop.close_with(one.union(other))",
            )
        if not isinstance(feedback, DataStream):
            raise PlanError(f"close_with({feedback!r}): this is not a stream", hint="give the stream that is to come back")
        if feedback._env is not env or feedback._step not in behind(graph, self._step):
            raise PlanError(
                f"the output of step {feedback._step!r} does not come from the loop {self._step!r}",
                hint="what comes back is made of what the loop emits; for another input: stream.union(other).iterate()",
            )
        if feedback._step == self._step and feedback._tag is None:
            raise PlanError(
                f"the loop {self._step!r} would come back to itself as it is",
                hint="put at least one step between, such as a filter that says what is to come back",
            )
        if feedback._exchange is not None:
            raise PlanError(
                f"close_with directly after {feedback._exchange.kind}",
                hint=f"leave it out here, and put it behind the loop: loop.{feedback._exchange.kind}(...)",
            )
        self._same_columns(feedback)
        node = graph.nodes[self._step]
        assert isinstance(node.definition, LoopHead)
        definition = LoopTail(loop=self._step, head=node.definition)
        env._add(definition, feedback._input(), name=f"{self._step}/feedback" if node.named else None, label="feedback")

    def leftovers(self) -> DataStream[T]:
        """The records that were to come back after they had been through the loop `max_rounds` times."""
        head = self._env._graph.nodes[self._step].definition
        assert isinstance(head, LoopHead)
        if head.max_rounds is None:
            raise PlanError(f"the loop {self._step!r} has no leftovers", hint="say how often a record may turn: max_rounds=")
        tail = self._tail()
        if tail is None:
            raise PlanError(f"the loop {self._step!r} is not closed yet", hint="call close_with(...) before leftovers()")
        return DataStream(self._env, tail, LEFTOVERS)

    def _tail(self) -> Any:
        definitions = ((node.step, node.definition) for node in self._env._graph)
        return next((step for step, made in definitions if isinstance(made, LoopTail) and made.loop == self._step), None)

    def _same_columns(self, feedback: DataStream[T]) -> None:
        """Refuse to feed back records that have not the columns of the input, where both are known."""
        graph, known = self._env._graph, self._env._schemas
        mine = schema_of(graph, self._input(), known, ask=False)
        theirs = schema_of(graph, feedback._input(), known, ask=False)
        if mine is not None and theirs is not None and set(mine.names) != set(theirs.names):
            raise PlanError(
                f"what comes back to the loop {self._step!r} has other columns than its input",
                detail=f"input: {', '.join(mine.names)}\nfeedback, of step {feedback._step!r}: {', '.join(theirs.names)}",
                hint="select the same columns in both",
            )


def iterated(
    stream: DataStream[T],
    *,
    max_rounds: int | None,
    turns: int,
    record_type: Any,
    name: str | None,
    previous_names: Sequence[str],
) -> Loop[T]:
    """A loop that begins with a stream."""
    for what, number in (("max_rounds", max_rounds), ("turns", turns)):
        if number is not None and (isinstance(number, bool) or number < 1):
            raise PlanError(f"iterate({what}={number!r})", hint="give a whole number of at least 1")
    if stream._exchange is not None and stream._exchange.kind == "key_by":
        raise PlanError(
            "iterate directly after key_by", hint="what comes back is to be keyed too: stream.iterate(...), then loop.key_by(...)"
        )
    definition = LoopHead(max_rounds=max_rounds, turns=turns, record_type=record_type)
    env = stream._env
    return Loop(env, env._add(definition, stream._input(), name=name, label="iterate", previous_names=previous_names))
