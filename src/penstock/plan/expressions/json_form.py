"""Expressions as JSON, for rules and pages.

    {"version": 1, "expression": {"call": "greater", "args": [{"col": "amount"}, {"lit": 100}]}}

A node is `{"col": name}`, `{"lit": value}` with a `"type"` where JSON has none of its own, or `{"call": function, "args": [...]}`
with `"options"` where the function has some. `{"as": name, "of": node}` around it gives the column a name.

Law: what is read is written again as it was, or refused: a field, function, option or type that is not known is never passed
over.
What is read can only be computed, never run.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import PlanError
from penstock.plan.expressions.literals import literal_data, literal_of
from penstock.plan.expressions.nodes import MAX_DEPTH, Call, Column, Literal, Node
from penstock.plan.expressions.registry import function_of
from penstock.plan.expressions.types import parse_type

VERSION = 1
MAX_BYTES = 1 << 20


def to_data(node: Node, name: str | None) -> dict[str, Any]:
    """An expression as JSON-able data, with its version."""
    data = node_data(node)
    return {"version": VERSION, "expression": data if name is None else {"as": name, "of": data}}


def node_data(node: Node) -> dict[str, Any]:
    if isinstance(node, Column):
        return {"col": node.name}
    if isinstance(node, Literal):
        return literal_data(node)
    data: dict[str, Any] = {"call": node.function, "args": [node_data(argument) for argument in node.arguments]}
    if node.options:
        data["options"] = dict(node.options)
    return data


def from_json(text: str | bytes) -> tuple[Node, str | None]:
    """The expression and the name that a JSON text gives."""
    size = len(text.encode(errors="surrogatepass") if isinstance(text, str) else text)
    if size > MAX_BYTES:
        raise PlanError(f"the JSON of an expression has {size:,} bytes", hint=f"{MAX_BYTES:,} are read at most")
    try:
        data = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise PlanError("this is not the JSON of an expression", detail=str(error)) from error
    except RecursionError as error:
        raise _too_deep() from error
    return from_data(data)


def from_data(data: Any) -> tuple[Node, str | None]:
    """The expression and the name that JSON-able data gives."""
    if not isinstance(data, dict) or set(data) != {"version", "expression"}:
        raise _refused(data, 'an expression is {"version": 1, "expression": {...}}')
    if data["version"] != VERSION or isinstance(data["version"], bool):
        raise PlanError(
            f"an expression of version {data['version']!r:.50}; this Penstock reads version {VERSION}",
            hint="was it written by a newer Penstock?",
        )
    inner = data["expression"]
    if isinstance(inner, dict) and "as" in inner:
        if set(inner) != {"as", "of"} or not isinstance(inner["as"], str) or not inner["as"]:
            raise _refused(inner, 'a name is given by {"as": "total", "of": {...}}')
        return _node(inner["of"], 1), inner["as"]
    return _node(inner, 1), None


def _node(data: Any, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise _too_deep()
    if isinstance(data, dict):
        keys = set(data)
        if keys == {"col"} and isinstance(data["col"], str):
            return Column(data["col"])
        if keys == {"lit"}:
            return literal_of(data["lit"], None)
        if keys == {"lit", "type"} and isinstance(data["type"], str):
            return literal_of(data["lit"], parse_type(data["type"]))
        if "call" in keys and keys <= {"call", "args", "options"}:
            return _call(data, depth)
    raise _refused(
        data, 'a part is {"col": name}, {"lit": value, "type": type} or {"call": function, "args": [...], "options": {...}}'
    )


def _call(data: dict[str, Any], depth: int) -> Call:
    name, arguments, options = data["call"], data.get("args", []), data.get("options", {})
    if not isinstance(name, str) or not isinstance(arguments, list) or not isinstance(options, dict):
        raise _refused(data, 'a call is {"call": function, "args": [...], "options": {...}}')
    if not all(isinstance(value, str | int | bool | None) for value in options.values()):
        raise _refused(data, "options are strings, whole numbers, true, false or null")
    function_of(name, len(arguments), options)
    return Call(name, tuple(_node(argument, depth + 1) for argument in arguments), tuple(sorted(options.items())))


def _refused(data: Any, hint: str) -> PlanError:
    return PlanError("this is not the JSON of an expression", detail=f"found: {data!r:.200}", hint=hint)


def _too_deep() -> PlanError:
    return PlanError(f"the JSON of an expression is more than {MAX_DEPTH} levels deep")
