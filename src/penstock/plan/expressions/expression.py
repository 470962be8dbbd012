"""What a person writes: `col("price") * col("n") > 100`. An expression is a value; operators and methods make new ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

import msgspec

from penstock.errors import PlanError
from penstock.experimental import experimental
from penstock.plan.expressions import (
    functions,  # noqa: F401 - registers them
    json_form,
)
from penstock.plan.expressions.literals import literal, literal_list
from penstock.plan.expressions.nodes import Call, Column, Literal, Node, Option
from penstock.plan.expressions.registry import function_of
from penstock.plan.expressions.text import node_text
from penstock.plan.expressions.types import type_of, type_text


class Expression:
    """A column computed from others. Made with `col`, `lit`, `when`, `coalesce` and `concat`.

    >>> (col("price") * col("n") > 100) & ~col("user").is_null()
    (price * n > 100) & not(is_null(user))

    Operators are `+ - * / // % **`, comparisons, and `&`, `|`, `~` for and, or, not: put comparisons in parentheses.
    """

    __slots__ = ("name", "node")

    def __init__(self, node: Node, name: str | None = None) -> None:
        self.node = node
        self.name = name
        """What the column is called in a result."""

    # --- names and types ---------------------------------------------------------------------------------------------------

    def alias(self, name: str) -> Expression:
        """The same, under a name."""
        given: object = name
        if not isinstance(given, str) or not given:
            raise PlanError(f"alias({name!r}): a name is a string", hint='for example .alias("total")')
        return Expression(self.node, name)

    def cast(self, to: Any) -> Expression:
        """The value in another type: `int`, `"timestamp[ms]"`, `pa.float32()`. What does not fit is an error."""
        return self._call("cast", to=type_text(type_of(to)))

    # --- arithmetic --------------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Expression:
        return _call("add", self, other)

    def __radd__(self, other: Any) -> Expression:
        return _call("add", other, self)

    def __sub__(self, other: Any) -> Expression:
        return _call("subtract", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return _call("subtract", other, self)

    def __mul__(self, other: Any) -> Expression:
        return _call("multiply", self, other)

    def __rmul__(self, other: Any) -> Expression:
        return _call("multiply", other, self)

    def __truediv__(self, other: Any) -> Expression:
        return _call("divide", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return _call("divide", other, self)

    def __floordiv__(self, other: Any) -> Expression:
        return _call("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Expression:
        return _call("floor_divide", other, self)

    def __mod__(self, other: Any) -> Expression:
        return _call("modulo", self, other)

    def __rmod__(self, other: Any) -> Expression:
        return _call("modulo", other, self)

    def __pow__(self, other: Any) -> Expression:
        return _call("power", self, other)

    def __rpow__(self, other: Any) -> Expression:
        return _call("power", other, self)

    def __neg__(self) -> Expression:
        return self._call("negate")

    def abs(self) -> Expression:
        return self._call("abs")

    def floor(self) -> Expression:
        return self._call("floor")

    def ceil(self) -> Expression:
        return self._call("ceil")

    def round(self, digits: int = 0) -> Expression:
        """Rounded to so many digits; what is in the middle goes to the even neighbour."""
        return self._call("round", digits=digits)

    def sqrt(self) -> Expression:
        return self._call("sqrt")

    def exp(self) -> Expression:
        return self._call("exp")

    def ln(self) -> Expression:
        return self._call("ln")

    # --- comparison and logic ------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return _call("equal", self, other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return _call("not_equal", self, other)

    def __lt__(self, other: Any) -> Expression:
        return _call("less", self, other)

    def __le__(self, other: Any) -> Expression:
        return _call("less_equal", self, other)

    def __gt__(self, other: Any) -> Expression:
        return _call("greater", self, other)

    def __ge__(self, other: Any) -> Expression:
        return _call("greater_equal", self, other)

    __hash__ = None  # type: ignore[assignment]  # equality gives an expression

    def __and__(self, other: Any) -> Expression:
        return _call("and", self, other)

    def __rand__(self, other: Any) -> Expression:
        return _call("and", other, self)

    def __or__(self, other: Any) -> Expression:
        return _call("or", self, other)

    def __ror__(self, other: Any) -> Expression:
        return _call("or", other, self)

    def __invert__(self) -> Expression:
        return self._call("not")

    def is_null(self) -> Expression:
        return self._call("is_null")

    def is_not_null(self) -> Expression:
        return self._call("is_not_null")

    def is_nan(self) -> Expression:
        return self._call("is_nan")

    def is_in(self, values: Iterable[Any]) -> Expression:
        """Equal to one of the values. With None among them the answer is null instead of false, as in SQL."""
        if isinstance(values, str | bytes | Expression) or not isinstance(values, Iterable):
            raise PlanError(f"is_in({values!r:.100}): this is no list of values", hint='for example is_in(["a", "b"])')
        return Expression(Call("is_in", (self.node, literal_list(values))))

    def between(self, low: Any, high: Any) -> Expression:
        """`low <= this <= high`."""
        return _call("between", self, low, high)

    # --- strings -------------------------------------------------------------------------------------------------------------

    def lower(self) -> Expression:
        return self._call("lower")

    def upper(self) -> Expression:
        return self._call("upper")

    def length(self) -> Expression:
        """Characters of a string, bytes of bytes, elements of a list."""
        return self._call("length")

    def contains(self, pattern: str) -> Expression:
        """Is this text in it?"""
        return self._call("contains", pattern=pattern)

    def starts_with(self, pattern: str) -> Expression:
        return self._call("starts_with", pattern=pattern)

    def ends_with(self, pattern: str) -> Expression:
        return self._call("ends_with", pattern=pattern)

    def like(self, pattern: str) -> Expression:
        """SQL's LIKE: `%` is any text, `_` one character, a backslash before them takes them as they are."""
        return self._call("like", pattern=pattern)

    def regexp(self, pattern: str) -> Expression:
        """Is there a match of the regular expression (RE2) in it?"""
        return self._call("regexp", pattern=pattern)

    def substring(self, start: int, length: int | None = None) -> Expression:
        """The characters from `start` (the first is 0), so many at most."""
        return self._call("substring", start=start, length=length)

    def trim(self, characters: str | None = None) -> Expression:
        """Without white space, or these characters, at both ends."""
        return self._call("trim", characters=characters)

    def trim_start(self, characters: str | None = None) -> Expression:
        return self._call("trim_start", characters=characters)

    def trim_end(self, characters: str | None = None) -> Expression:
        return self._call("trim_end", characters=characters)

    def replace(self, pattern: str, by: str) -> Expression:
        """With every such text replaced."""
        return self._call("replace", pattern=pattern, by=by)

    # --- times ---------------------------------------------------------------------------------------------------------------

    def year(self) -> Expression:
        return self._call("year")

    def quarter(self) -> Expression:
        return self._call("quarter")

    def month(self) -> Expression:
        return self._call("month")

    def day(self) -> Expression:
        return self._call("day")

    def hour(self) -> Expression:
        return self._call("hour")

    def minute(self) -> Expression:
        return self._call("minute")

    def second(self) -> Expression:
        return self._call("second")

    def truncate(self, unit: str) -> Expression:
        """The beginning of its second, minute, hour, day, week (a Monday), month, quarter or year."""
        return self._call("truncate", unit=unit)

    # --- nested values -------------------------------------------------------------------------------------------------------

    def field(self, name: str) -> Expression:
        """A field of a nested record."""
        made = self._call("field", name=name)
        return Expression(made.node, name)

    def element(self, index: int) -> Expression:
        """An element of a list, the first being 0 and the last -1; null if there is none."""
        return self._call("element", index=index)

    # --- as JSON -------------------------------------------------------------------------------------------------------------

    @experimental
    def to_data(self) -> dict[str, Any]:
        """The expression as JSON-able data, with a version."""
        return json_form.to_data(self.node, self.name)

    @experimental
    def to_json(self) -> str:
        """The expression as JSON, with a version."""
        return msgspec.json.encode(self.to_data()).decode()

    @classmethod
    @experimental
    def from_data(cls, data: Any) -> Expression:
        """The inverse of `to_data`. What is not known is refused."""
        return cls(*json_form.from_data(data))

    @classmethod
    @experimental
    def from_json(cls, text: str | bytes) -> Expression:
        """The inverse of `to_json`. What is not known is refused."""
        return cls(*json_form.from_json(text))

    # --- the rest ------------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return node_text(self.node)

    def __bool__(self) -> NoReturn:
        raise PlanError(
            "an expression is neither true nor false before there are rows",
            detail=f"expression: {self!r:.300}",
            hint="instead of and, or, not write (…) & (…), (…) | (…), ~(…); instead of a < x < b write x.between(a, b); "
            "instead of if: when(…).then(…).otherwise(…)",
        )

    def __iter__(self) -> NoReturn:
        raise PlanError("an expression has no elements before there are rows", hint="x.element(0), x.field(name), x.is_in([...])")

    def __reduce__(self) -> tuple[object, ...]:
        return (Expression, (self.node, self.name))

    def _call(self, function: str, **options: Option) -> Expression:
        return _call(function, self, **options)


def col(name: str) -> Expression:
    """A column of the stream, or a field of its records.

    >>> (col("price") * col("n") > 100) & col("user").is_not_null()
    (price * n > 100) & is_not_null(user)
    """
    return Expression(Column(name), name)


def lit(value: Any) -> Expression:
    """A value. Beside an expression plain values do as well: `col("n") + 1`."""
    return value if isinstance(value, Expression) else Expression(literal(value))


def coalesce(*values: Any) -> Expression:
    """The first that is not null."""
    return _call("coalesce", *values)


def concat(*values: Any) -> Expression:
    """Strings put together; null if one of them is."""
    return _call("concat", *values)


def when(condition: Any) -> When:
    """A choice: `when(col("n") > 0).then("some").when(col("n") == 0).then("none").otherwise("?")`.

    Null counts as false. What is not chosen is not computed.

    >>> from penstock import StreamEnvironment
    >>> numbers = StreamEnvironment(executor="inline").from_collection([{"n": 2}, {"n": 0}, {"n": None}])
    >>> numbers.select(shown=when(col("n") > 0).then("some").otherwise("none")).execute_and_collect()
    [{'shown': 'some'}, {'shown': 'none'}, {'shown': 'none'}]
    """
    return When((), _node(condition))


class When:
    """A choice that lacks the value for its last condition."""

    __slots__ = ("_before", "_condition")

    def __init__(self, before: tuple[Node, ...], condition: Node) -> None:
        self._before = before
        self._condition = condition

    def then(self, value: Any) -> Then:
        """The value where the condition is true."""
        return Then((*self._before, self._condition, _node(value)))


class Then:
    """A choice that lacks the value for all other rows."""

    __slots__ = ("_arguments",)

    def __init__(self, arguments: tuple[Node, ...]) -> None:
        self._arguments = arguments

    def when(self, condition: Any) -> When:
        """The next condition, for rows for which none before was true."""
        return When(self._arguments, _node(condition))

    def otherwise(self, value: Any) -> Expression:
        """The value where no condition is true."""
        return Expression(Call("when", (*self._arguments, _node(value))))


def _node(value: Any) -> Node:
    if isinstance(value, When | Then):
        raise PlanError("a choice has no end", hint="end it with .otherwise(value); otherwise(None) gives null")
    return value.node if isinstance(value, Expression) else literal(value)


def _call(function: str, *arguments: Any, **options: Option) -> Expression:
    for option, value in options.items():
        if isinstance(value, Expression):
            raise PlanError(f"{function}: {option} is a constant, not a column", detail=f"given: {value!r:.200}")
    function_of(function, len(arguments), options)
    nodes = tuple(map(_node, arguments))
    return Expression(Call(function, nodes, tuple(sorted(options.items()))))


__all__ = ["Expression", "Literal", "Then", "When", "coalesce", "col", "concat", "lit", "when"]
