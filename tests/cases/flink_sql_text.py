"""The SQL of Flink's expression cases as column expressions: a small part, enough for the functions that both have.

What is not in it raises `NotBuiltError`, with what that is: the case is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from penstock import col, lit, when
from penstock.expressions import Expression, coalesce, concat
from penstock.plan.expressions.nodes import Literal
from tests.cases.expectations import NotBuiltError

_TOKEN = re.compile(r"\s*(?:(\d+\.\d+|\d+)|'((?:[^']|'')*)'|([A-Za-z_][A-Za-z_0-9]*)|(<>|<=|>=|[-+*/%=<>(),]))")
_TYPES = {"INT": "int32", "BIGINT": "int64", "SMALLINT": "int16", "TINYINT": "int8", "DOUBLE": "float64", "BOOLEAN": "bool"}
_FUNCTIONS: dict[str, Callable[..., Expression]] = {
    "UPPER": lambda x: x.upper(),
    "LOWER": lambda x: x.lower(),
    "CHAR_LENGTH": lambda x: x.length(),
    "CHARACTER_LENGTH": lambda x: x.length(),
    "ABS": lambda x: x.abs(),
    "FLOOR": lambda x: x.floor(),
    "CEIL": lambda x: x.ceil(),
    "SQRT": lambda x: x.sqrt(),
    "EXP": lambda x: x.exp(),
    "LN": lambda x: x.ln(),
    "CONCAT": concat,
    "COALESCE": coalesce,
    "IFNULL": coalesce,
    "YEAR": lambda x: x.year(),
    "QUARTER": lambda x: x.quarter(),
    "MONTH": lambda x: x.month(),
    "DAYOFMONTH": lambda x: x.day(),
    "HOUR": lambda x: x.hour(),
    "MINUTE": lambda x: x.minute(),
    "SECOND": lambda x: x.second(),
    "IF": lambda c, x, y: when(c).then(x).otherwise(y),
    "TRIM": lambda x: x.trim(" "),
    "LTRIM": lambda x: x.trim_start(" "),
    "RTRIM": lambda x: x.trim_end(" "),
}
_COMPARISONS: dict[str, Callable[[Expression, Expression], Expression]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def expression_of(sql: str) -> Expression:
    """The expression that the SQL is."""
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(sql.rstrip()):
        found = _TOKEN.match(sql, at)
        if found is None:
            raise NotBuiltError(f"the runner does not read {sql[at:].strip()[:1]!r}")
        kind = ("number", "text", "word", "sign")[found.lastindex - 1] if found.lastindex else ""
        tokens.append((kind, found[found.lastindex or 0]))
        at = found.end()
    parser = _Parser(tokens)
    made = parser.either()
    if parser.at < len(tokens):
        raise NotBuiltError(f"the runner does not read {parser.peek()!r} here")
    return made


class _Parser:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self.at = 0

    def peek(self) -> str:
        if self.at >= len(self._tokens):
            return ""
        kind, text = self._tokens[self.at]
        return "'" if kind == "text" else text.upper()

    def take(self, *wanted: str) -> bool:
        for offset, word in enumerate(wanted):
            place = self.at + offset
            if place >= len(self._tokens) or self._tokens[place][0] == "text" or self._tokens[place][1].upper() != word:
                return False
        self.at += len(wanted)
        return True

    def need(self, word: str) -> None:
        if not self.take(word):
            raise NotBuiltError(f"the runner does not read {self.peek()!r} where {word!r} may be")

    def either(self) -> Expression:
        left = self.both()
        while self.take("OR"):
            left = left | self.both()
        return left

    def both(self) -> Expression:
        left = self.negated()
        while self.take("AND"):
            left = left & self.negated()
        return left

    def negated(self) -> Expression:
        return ~self.negated() if self.take("NOT") else self.compared()

    def compared(self) -> Expression:
        left = self.sum()
        while True:
            if self.peek() in _COMPARISONS:
                sign = self.peek()
                self.at += 1
                left = _COMPARISONS[sign](left, self.sum())
            elif self.take("IS", "NOT", "NULL"):
                left = left.is_not_null()
            elif self.take("IS", "NULL"):
                left = left.is_null()
            elif self.peek() in ("LIKE", "IN", "NOT"):
                inverted = self.take("NOT")
                found = self.like(left) if self.take("LIKE") else self.among(left)
                left = ~found if inverted else found
            elif self.take("BETWEEN"):
                low = self.sum()
                self.need("AND")
                left = left.between(low, self.sum())
            else:
                return left

    def like(self, left: Expression) -> Expression:
        pattern = self.sum().node
        if (
            not isinstance(pattern, Literal)
            or not isinstance(pattern.value, str)
            or "\\" in pattern.value
            or self.peek() == "ESCAPE"
        ):
            raise NotBuiltError("LIKE of a pattern that is none of ours")
        return left.like(pattern.value)

    def among(self, left: Expression) -> Expression:
        self.need("IN")
        self.need("(")
        values: list[Any] = []
        while not self.take(")"):
            if values:
                self.need(",")
            value = self.sum().node
            if not isinstance(value, Literal):
                raise NotBuiltError("IN of what is no constant")
            values.append(value.value)
        return left.is_in(values)

    def sum(self) -> Expression:
        left = self.product()
        while self.peek() in ("+", "-"):
            added = self.take("+")
            if not added:
                self.need("-")
            left = left + self.product() if added else left - self.product()
        return left

    def product(self) -> Expression:
        left = self.signed()
        while self.peek() in ("*", "/", "%"):
            if not self.take("*"):
                raise NotBuiltError("division is Python's, not SQL's")
            left = left * self.signed()
        return left

    def signed(self) -> Expression:
        return -self.signed() if self.take("-") else self.atom()

    def atom(self) -> Expression:
        if self.take("("):
            inner = self.either()
            self.need(")")
            return inner
        kind, text = self._tokens[self.at] if self.at < len(self._tokens) else ("", "")
        self.at += 1
        if kind == "number":
            if "." in text:
                raise NotBuiltError("decimal literals")
            return lit(int(text))
        if kind == "text":
            return lit(text.replace("''", "'"))
        if kind != "word":
            raise NotBuiltError(f"the runner does not read {text!r} here")
        word = text.upper()
        if word in ("TRUE", "FALSE", "NULL"):
            return lit({"TRUE": True, "FALSE": False, "NULL": None}[word])
        if word == "CASE":
            return self.case()
        if self.take("("):
            return self.call(word)
        if re.fullmatch(r"f\d+|F\d+", text):
            return col(text)
        raise NotBuiltError(f"the runner does not read {word}")

    def case(self) -> Expression:
        if self.peek() != "WHEN":
            raise NotBuiltError("CASE with a value")
        chain: Any = None
        while self.take("WHEN"):
            condition = self.either()
            self.need("THEN")
            value = self.either()
            chain = (when(condition) if chain is None else chain.when(condition)).then(value)
        last = self.either() if self.take("ELSE") else lit(None)
        self.need("END")
        made: Expression = chain.otherwise(last)
        return made

    def call(self, name: str) -> Expression:
        if name == "CAST":
            value = self.either()
            self.need("AS")
            kind = self.peek()
            self.at += 1
            if kind not in _TYPES:
                raise NotBuiltError(f"a cast to {kind}")
            self.need(")")
            return value.cast(_TYPES[kind])
        if name not in _FUNCTIONS:
            raise NotBuiltError(f"no function {name}")
        arguments: list[Expression] = []
        while not self.take(")"):
            if arguments:
                self.need(",")
            arguments.append(self.either())
        try:
            return _FUNCTIONS[name](*arguments)
        except TypeError as error:
            raise NotBuiltError(f"{name} of {len(arguments)} arguments") from error
