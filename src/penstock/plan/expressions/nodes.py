"""The tree of an expression: columns, literals, calls.

Nodes are values: equal if they are written alike, picklable, and bounded in size and depth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import PlanError

MAX_DEPTH = 100
MAX_NODES = 10_000

Option = str | int | bool | None
Options = Mapping[str, Option]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the input."""

    name: str

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or not name:
            raise PlanError(f"col({self.name!r}): a column has a name", hint='for example col("amount")')


@dataclass(frozen=True, slots=True)
class Literal:
    """A value of a type. `value` is what `pa.scalar(value, type)` takes; lists are tuples."""

    value: Any
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the registry, by name. `options` are constants that are part of the call, sorted by name."""

    function: str
    arguments: tuple[Node, ...]
    options: tuple[tuple[str, Option], ...] = ()
    depth: int = field(init=False, compare=False, repr=False, default=0)
    nodes: int = field(init=False, compare=False, repr=False, default=0)

    def __post_init__(self) -> None:
        depth = 1 + max((depth_of(argument) for argument in self.arguments), default=0)
        nodes = 1 + sum(nodes_of(argument) for argument in self.arguments)
        if depth > MAX_DEPTH:
            raise PlanError(
                f"an expression is more than {MAX_DEPTH} levels deep",
                hint="compute parts of it in a with_columns(...) before; for many alternatives of a value use is_in([...])",
            )
        if nodes > MAX_NODES:
            raise PlanError(
                f"an expression has more than {MAX_NODES:,} parts",
                hint="compute parts of it in a with_columns(...) before; for many alternatives of a value use is_in([...])",
            )
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "nodes", nodes)


Node = Column | Literal | Call


def depth_of(node: Node) -> int:
    return node.depth if isinstance(node, Call) else 1


def nodes_of(node: Node) -> int:
    return node.nodes if isinstance(node, Call) else 1


def columns_of(node: Node) -> tuple[str, ...]:
    """The columns that it uses, each once, in the order in which they are written."""
    return tuple(dict.fromkeys(_columns(node)))


def _columns(node: Node) -> Iterator[str]:
    if isinstance(node, Column):
        yield node.name
    elif isinstance(node, Call):
        for argument in node.arguments:
            yield from _columns(argument)
