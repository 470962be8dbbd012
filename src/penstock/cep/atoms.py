"""The conditions of an automaton in a worker: which are known of a whole batch, and how the others are asked of an event.

An event has two sets of bits: which conditions are *known* of it, and which of those *hold*. Conditions over columns are known of
every event when its batch comes; those of the event alone are asked for when a partial match needs them, and kept; those of the
match so far are asked for each partial match.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.cep.conditions import (
    Both,
    Condition,
    Either,
    OfClass,
    OfColumns,
    OfEvent,
    OfMatch,
    Soon,
    bulk_part,
    in_bulk,
    is_iterative,
    leaves,
)
from penstock.ids import Milliseconds
from penstock.records import Batch, Records
from penstock.runtime.operators.evaluator import Evaluator

Bits = npt.NDArray[np.int64]

MOST_BITS = 62
"""So many conditions at most are known of a batch; more are asked of each event."""


class Event:
    """An event of a key: `known` conditions, and which of them hold (`bits`). `value`: the record; `row`: of a batch, if it
    is not a record yet."""

    __slots__ = ("bits", "id", "known", "row", "taken", "time", "value")

    def __init__(self, time: Milliseconds, id: int, value: Any, known: int = 0, bits: int = 0, row: int = -1) -> None:
        self.time = time
        self.id = id
        self.value = value
        self.known = known
        self.bits = bits
        self.row = row
        self.taken = False
        """Is it in a match?"""


class SoFar(Protocol):
    """A partial match, as a condition sees it."""

    @property
    def last_time(self) -> Milliseconds: ...

    def events(self, stage: str) -> Sequence[Any]: ...


Ask = Callable[[Event, Any], bool]


class Atoms:
    """The conditions of an automaton."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self.conditions = tuple(conditions)
        self._asking = 0
        self.iterative = frozenset(n for n, condition in enumerate(conditions) if is_iterative(condition))
        self.iterative_bits = sum(1 << n for n in self.iterative)
        self._columns: dict[Any, int] = {}
        """Expressions inside conditions that are not of columns alone: they have bits too, behind those of the conditions."""
        bulk: list[tuple[int, Condition]] = [(n, c) for n, c in enumerate(conditions) if in_bulk(c)]
        mixed = [c for c in conditions if not in_bulk(c)]
        for condition in mixed:
            for leaf in leaves(condition):
                if isinstance(leaf, OfColumns) and leaf.node not in self._columns:
                    number = self._columns[leaf.node] = len(conditions) + len(self._columns)
                    bulk.append((number, leaf))
        self._bulk = [(n, c) for n, c in bulk if n < MOST_BITS]
        self._parts = [
            (n, part)
            for n, condition in enumerate(conditions)
            if n < MOST_BITS and not in_bulk(condition) and (part := bulk_part(condition)) is not None
        ]
        nodes = {leaf.node for _, c in (*self._bulk, *self._parts) for leaf in leaves(c) if isinstance(leaf, OfColumns)}
        self._nodes = list(dict.fromkeys(nodes))
        self._evaluator = Evaluator([(OfColumns(node).describe(), node) for node in self._nodes])
        self.known = sum(1 << n for n, _ in self._bulk)
        """What is known of every event of a batch."""
        self._asks: list[Ask] = [self._ask(condition) for condition in conditions]

    @property
    def asking(self) -> Any:
        """The function that was asked last, for messages."""
        for leaf in leaves(self.conditions[self._asking]):
            if isinstance(leaf, OfEvent | OfMatch):
                return leaf.function
        return None

    @property
    def needs_records(self) -> bool:
        """Is anything asked of records?"""
        return any(n >= MOST_BITS or not in_bulk(condition) for n, condition in enumerate(self.conditions))

    def of_batch(self, batch: Batch) -> tuple[Bits, Bits]:
        """For each row: which conditions are known, which of them hold."""
        size = len(batch)
        known = np.full(size, self.known, dtype=np.int64)
        bits = np.zeros(size, dtype=np.int64)
        if not self._nodes or not size:
            return known, bits
        columns = {node: _true(values) for node, values in zip(self._nodes, self._evaluator(batch), strict=True)}
        for number, condition in self._bulk:
            bits |= _combined(condition, columns).astype(np.int64) << number
        for number, part in self._parts:
            if number < len(self.conditions):
                known |= (~_combined(part, columns)).astype(np.int64) << number
        return known, bits

    def ask(self, number: int, event: Event, so_far: SoFar) -> bool:
        """Does the condition hold? What depends on the event alone is kept."""
        bit = 1 << number
        if event.known & bit:
            return bool(event.bits & bit)
        self._asking = number
        holds = self._asks[number](event, so_far)
        if number not in self.iterative:
            event.known |= bit
            if holds:
                event.bits |= bit
        return holds

    def _ask(self, condition: Condition) -> Ask:
        if isinstance(condition, OfColumns):
            return self._of_columns(condition)
        if isinstance(condition, OfEvent):
            function = condition.function
            return lambda event, so_far: bool(function(event.value))
        if isinstance(condition, OfMatch):
            of_match = condition.function
            return lambda event, so_far: bool(of_match(event.value, so_far))
        if isinstance(condition, OfClass):
            cls = condition.cls
            return lambda event, so_far: isinstance(event.value, cls)
        if isinstance(condition, Soon):
            within = condition.within_ms
            return lambda event, so_far: event.time - so_far.last_time < within
        left, right = self._ask(condition.left), self._ask(condition.right)
        if isinstance(condition, Both):
            return lambda event, so_far: left(event, so_far) and right(event, so_far)
        assert isinstance(condition, Either)
        return lambda event, so_far: left(event, so_far) or right(event, so_far)

    def _of_columns(self, condition: OfColumns) -> Ask:
        bit = 1 << self._columns.get(condition.node, MOST_BITS)
        evaluator = Evaluator([(condition.describe(), condition.node)])

        def ask(event: Event, so_far: Any) -> bool:
            if event.known & bit:
                return bool(event.bits & bit)
            (values,) = evaluator(Records([event.value]))
            return bool(_true(values)[0])

        return ask


def _true(values: Any) -> npt.NDArray[np.bool_]:
    """Null is not true."""
    column = values if isinstance(values, pa.Array) else pa.array(values)
    if pa.types.is_null(column.type):
        return np.zeros(len(column), dtype=np.bool_)
    return np.asarray(column.cast(pa.bool_()).fill_null(False))


def _combined(condition: Condition, columns: dict[Any, npt.NDArray[np.bool_]]) -> npt.NDArray[np.bool_]:
    if isinstance(condition, OfColumns):
        return columns[condition.node]
    assert isinstance(condition, Both | Either)
    left, right = _combined(condition.left, columns), _combined(condition.right, columns)
    return left & right if isinstance(condition, Both) else left | right
