"""The functions that an expression may call: a type rule and a kernel for each, by name.

SQL and patterns add theirs here (`register`), under names of their own where their rules differ (an `add` that wraps, say).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import PlanError, did_you_mean
from penstock.plan.expressions.nodes import Option, Options

Types = Sequence[pa.DataType | None]
Kernel = Callable[..., Any]
"""From arrays or scalars to an array or a scalar."""


class TypeProblemError(Exception):
    """The arguments of a function are of types that it does not take."""


@dataclass(frozen=True, slots=True)
class Typing:
    """What a type rule says: the types that the arguments are cast to (None: as they are), and that of the result (None: not
    known, because an argument's is not)."""

    casts: tuple[pa.DataType | None, ...]
    result: pa.DataType | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """`rule` may raise `TypeProblemError`. `kernel` makes, from the options and the types that the arguments then have, what
    computes; of a lazy function that gets the rows, and the arguments as functions of rows. `options`: what they must be, by
    name. `constants`: numbers of arguments that must be literals."""

    name: str
    least: int
    most: int | None
    rule: Callable[[Types, Options], Typing]
    kernel: Callable[[Options, tuple[pa.DataType, ...]], Kernel]
    options: Mapping[str, Callable[[Option], bool]] = field(default_factory=dict)
    lazy: bool = False
    arrays: bool = False
    """The kernel needs arrays: a literal is repeated for each row."""
    operator: str = ""
    """How it is written between its arguments."""
    constants: tuple[int, ...] = ()


_FUNCTIONS: dict[str, Function] = {}


def register(function: Function) -> None:
    if function.name in _FUNCTIONS:
        raise ValueError(f"there are two functions {function.name!r}")
    _FUNCTIONS[function.name] = function


def known_functions() -> tuple[str, ...]:
    return tuple(sorted(_FUNCTIONS))


def function_of(name: str, arguments: int, options: Options) -> Function:
    """The function of that name, if it can be called with so many arguments and these options."""
    function = _FUNCTIONS.get(name)
    if function is None:
        raise PlanError(
            f"there is no function {name!r:.100}",
            hint=did_you_mean(name, _FUNCTIONS) or f"functions: {', '.join(known_functions())}",
        )
    if arguments < function.least or (function.most is not None and arguments > function.most):
        wanted = f"{function.least}" if function.least == function.most else f"{function.least} to {function.most or 'any'}"
        raise PlanError(f"{name} takes {wanted} arguments, not {arguments}")
    unknown = sorted(options.keys() ^ function.options.keys())
    if unknown:
        said = ", ".join(function.options) or "none"
        raise PlanError(f"{name}: option {unknown[0]!r:.100} is {_wrong(unknown[0], options)}", hint=f"its options: {said}")
    for option, is_right in function.options.items():
        if not is_right(options[option]):
            raise PlanError(f"{name}: {option}={options[option]!r:.100} is not possible")
    return function


def _wrong(option: str, options: Options) -> str:
    return "not known" if option in options else "missing"
