"""An expression as people read it, in messages and `explain`.

>>> from penstock.plan.expressions.expression import col
>>> node_text(((col("price") * col("n") > 100) & col("user").is_not_null()).node)
'(price * n > 100) & is_not_null(user)'
"""

from __future__ import annotations

from penstock.plan.expressions.nodes import Call, Column, Literal, Node
from penstock.plan.expressions.registry import function_of

_TIGHTER = {"**": 6, "*": 5, "/": 5, "//": 5, "%": 5, "+": 4, "-": 4, "&": 2, "|": 1}
_COMPARISON = 3


def node_text(node: Node) -> str:
    return _text(node)[0]


def _text(node: Node) -> tuple[str, int]:
    """The text, and how tightly it holds together."""
    if isinstance(node, Column):
        return node.name if node.name.isidentifier() else f"col({node.name!r})", 9
    if isinstance(node, Literal):
        value = list(node.value) if isinstance(node.value, tuple) else node.value
        return f"{value!r:.80}", 9
    symbol = function_of(node.function, len(node.arguments), dict(node.options)).operator
    if symbol:
        level = _TIGHTER.get(symbol, _COMPARISON)
        left, right = node.arguments
        return f"{_inner(left, level)} {symbol} {_inner(right, level + 1)}", level
    return f"{node.function}({', '.join([*map(node_text, node.arguments), *_options(node)])})", 9


def _inner(node: Node, level: int) -> str:
    text, own = _text(node)
    return text if own > _COMPARISON and own >= level else text if own == 9 else f"({text})"


def _options(call: Call) -> list[str]:
    return [f"{name}={value!r}" for name, value in call.options if value is not None]
