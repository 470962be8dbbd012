"""Patterns as the shared cases write them, as patterns of ours.

A condition is `{"op": ..., "l": ..., "r": ...}` over `{"field": name}` and `{"const": value}`; `and`, `or` and `not` may be
nested, and `{"events": stage, "field": name, "agg": "sum"}` is computed from the match so far.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from penstock.cep.pattern import Pattern
from penstock.cep.skipping import SkipStrategy
from penstock.plan.expressions.expression import Expression, col, lit


class UnknownWordError(Exception):
    """A case says something that the runner does not know."""


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}
_ON_TEXT = {"contains": "contains", "startsWith": "starts_with", "endsWith": "ends_with"}
_PLAIN_TEXT: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda left, right: right in left,
    "startsWith": lambda left, right: left.startswith(right),
    "endsWith": lambda left, right: left.endswith(right),
}
_AGGREGATES: dict[str, Callable[[list[Any]], Any]] = {
    "sum": sum,
    "count": len,
    "min": min,
    "max": max,
    "avg": lambda values: sum(values) / len(values),
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
}
_JOINED = {"and": operator.and_, "&&": operator.and_, "or": operator.or_, "||": operator.or_}
_NEGATED = ("not", "!")


def looks_back(data: Any) -> bool:
    """Does it depend on the match so far?"""
    if isinstance(data, dict):
        return "events" in data or any(map(looks_back, data.values()))
    return isinstance(data, list) and any(map(looks_back, data))


def condition(data: dict[str, Any]) -> Any:
    """An expression, or a function of event and match if it looks back."""
    if looks_back(data):
        return lambda event, match: bool(_value(data, event, match))
    return expression(data)


def expression(data: Any) -> Expression:
    if "field" in data:
        return col(data["field"])
    if "const" in data:
        return lit(data["const"])
    op, parts = _parts(data)
    if op in _NEGATED:
        return ~expression(parts[0])
    if op in _JOINED:
        joined = expression(parts[0])
        for part in parts[1:]:
            joined = _JOINED[op](joined, expression(part))
        return joined
    left, right = parts
    if op in _ON_TEXT:
        return getattr(expression(left), _ON_TEXT[op])(right["const"])  # type: ignore[no-any-return]
    if op in ("instanceof", "subtype"):
        return col("type") == lit(right["const"])
    return _OPERATORS[op](expression(left), expression(right))  # type: ignore[no-any-return]


def _parts(data: dict[str, Any]) -> tuple[str, list[Any]]:
    for word in (*_JOINED, *_NEGATED):
        if word in data:
            given = data[word]
            return word, given if isinstance(given, list) else [given]
    op = data.get("op")
    parts = data.get("args") or [data[side] for side in ("l", "r") if side in data]
    if op not in {*_OPERATORS, *_ON_TEXT, *_JOINED, *_NEGATED, "instanceof", "subtype"}:
        raise UnknownWordError(f"no condition {op!r} in the runner")
    return op, parts


def _value(data: dict[str, Any], event: dict[str, Any], match: Any) -> Any:
    if "events" in data:
        events = match.events(data["events"])
        values = [one[data["field"]] for one in events] if "field" in data else list(events)
        return _AGGREGATES[data.get("agg", "last")](values) if values or data.get("agg") in ("sum", "count") else None
    if "field" in data:
        return event[data["field"]]
    if "const" in data:
        return data["const"]
    op, parts = _parts(data)
    values = [_value(part, event, match) for part in parts]
    if op in _NEGATED:
        return not values[0]
    if op in _JOINED:
        return all(values) if op in ("and", "&&") else any(values)
    if None in values:
        return False
    return (_PLAIN_TEXT | _OPERATORS)[op](*values)


_STAGE_WORDS = {
    *("name", "contiguity", "where", "or", "orWhere", "until", "times", "times_window_ms", "optional", "greedy", "consecutive"),
    *("allowCombinations", "subtype", "within", "group", "pattern", "stages", "kind", "skip"),
}
_LINKS = {
    "next": "next",
    "followedBy": "followed_by",
    "followedByAny": "followed_by_any",
    "notNext": "not_next",
    "notFollowedBy": "not_followed_by",
}
_BETWEEN = {"FIRST_AND_LAST": "first_and_last", "PREVIOUS_AND_CURRENT": "previous_and_current"}
_SKIPS = {
    "noSkip": "no_skip",
    "skipToNext": "to_next",
    "skipPastLastEvent": "past_last_event",
    "skipToFirst": "to_first",
    "skipToLast": "to_last",
}


def pattern_of(data: dict[str, Any]) -> Pattern:
    pattern: Pattern | None = None
    for stage in data["stages"]:
        pattern = _stage(pattern, stage)
    assert pattern is not None
    pattern = _within(pattern, data.get("within"))
    skip = data.get("skip")
    return pattern if skip is None else pattern.skipping(_skip(skip))


def _skip(data: dict[str, Any]) -> SkipStrategy:
    if data["type"] not in _SKIPS:
        raise UnknownWordError(f"no skip strategy {data['type']!r} in the runner")
    found = SkipStrategy(_SKIPS[data["type"]], data.get("to"))  # type: ignore[arg-type]
    return found.fail_on_miss() if data.get("throwExceptionOnMiss") or data.get("throw") else found


def _within(pattern: Pattern, data: Any) -> Pattern:
    if data is None:
        return pattern
    given = data if isinstance(data, dict) else {"ms": data, "type": "FIRST_AND_LAST"}
    return pattern.within(given["ms"] / 1000, _BETWEEN[given.get("type", "FIRST_AND_LAST")])  # type: ignore[arg-type]


def _stage(pattern: Pattern | None, data: dict[str, Any]) -> Pattern:
    unknown = data.keys() - _STAGE_WORDS
    if unknown:
        raise UnknownWordError(f"no word {min(unknown)!r} of a stage in the runner")
    nested = data.get("group") or data.get("pattern") or (data if "stages" in data else None)
    given: Any = data["name"] if nested is None else pattern_of({"stages": nested} if isinstance(nested, list) else nested)
    link = data["contiguity"]
    if pattern is None:
        made = Pattern.begin(given)
    elif link in _LINKS:
        made = getattr(pattern, _LINKS[link])(given)
    else:
        raise UnknownWordError(f"no contiguity {link!r} in the runner")
    if data.get("subtype"):
        wanted = data["subtype"]
        made = made.where(col("type") == lit(wanted))
    if nested is not data:
        for one in data.get("where") or []:
            made = made.where(condition(one))
    for one in data.get("or", data.get("orWhere")) or []:
        made = made.or_where(condition(one))
    if (times := data.get("times")) is not None:
        made = _times(made, times, data.get("times_window_ms"))
    if data.get("consecutive"):
        made = made.consecutive()
    if data.get("allowCombinations"):
        made = made.allow_combinations()
    if data.get("greedy"):
        made = made.greedy()
    if data.get("optional") and not made.stages[-1].optional:
        made = made.optional()
    if data.get("until"):
        made = made.until(condition(data["until"]))
    return _within(made, data.get("within") if nested is not data else None)


def _times(pattern: Pattern, times: Any, window_ms: int | None) -> Pattern:
    least, most = (times, times) if isinstance(times, int) else times
    within = None if window_ms is None else window_ms / 1000
    if most is not None:
        return pattern.times(least, most, within=within)
    if least == 0:
        return pattern.one_or_more(within=within).optional()
    return pattern.times_or_more(least, within=within)
