"""Patterns as JSON.

    {"version": 1, "stages": [
        {"name": "small", "where": {"call": "less", "args": [{"col": "amount"}, {"lit": 1}]}},
        {"name": "big", "link": "followed_by", "where": {…}, "times": [2, null], "inner": "next", "optional": true}],
     "within_ms": 60000, "skip": {"kind": "past_last_event"}}

`times` is [from, to], to being null where there is no end. `{"group": [stages], "link": …, …}` is a group. Conditions are
expressions (`penstock.plan.expressions.json_form`).

Law: what is read is written again as it was, or refused: a field that is not known is never passed over.
"""

from __future__ import annotations

from typing import Any

from penstock.cep.checking import PatternError
from penstock.cep.conditions import Both, Condition, Either, OfColumns
from penstock.cep.pattern import Pattern
from penstock.cep.skipping import SkipStrategy
from penstock.cep.stages import Group, Link, Stage
from penstock.plan.expressions.expression import Expression
from penstock.plan.expressions.json_form import VERSION as EXPRESSION_VERSION
from penstock.plan.expressions.json_form import from_data, node_data

VERSION = 1
MOST_STAGES = 100

_STAGE = {"name", "group", "link", "where", "until", "times", "inner", "optional", "greedy", "within_ms", "times_within_ms"}
_INNER = {"followed_by": None, "next": "consecutive", "followed_by_any": "allow_combinations"}
_SKIPS = ("no_skip", "to_next", "past_last_event", "to_first", "to_last")


def pattern_to_data(pattern: Pattern) -> dict[str, Any]:
    """A pattern as JSON-able data. `PatternError` if a condition is a function."""
    data: dict[str, Any] = {"version": VERSION, "stages": [_stage_data(stage, n == 0) for n, stage in enumerate(pattern.stages)]}
    if pattern.within_ms is not None:
        data["within_ms"] = pattern.within_ms
    if pattern.skip != SkipStrategy():
        skip = {"kind": pattern.skip.kind, "stage": pattern.skip.stage, "fails_on_miss": pattern.skip.fails_on_miss or None}
        data["skip"] = {name: value for name, value in skip.items() if value is not None}
    return data


def _stage_data(stage: Stage, first: bool) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if isinstance(stage, Group):
        data["group"] = [_stage_data(inner, n == 0) for n, inner in enumerate(stage.stages)]
    else:
        data["name"] = stage.name
    if not first:
        data["link"] = stage.link.value
    for name, condition in (("where", stage.where), ("until", stage.until)):
        if condition is not None:
            data[name] = node_data(_expression(condition, stage.name).node)
    if stage.repeated:
        data["times"] = [stage.minimum, stage.maximum]
        if stage.inner is not Link.FOLLOWED_BY:
            data["inner"] = stage.inner.value
    more = {"optional": stage.optional, "greedy": stage.greedy}
    times = {"within_ms": stage.within_ms, "times_within_ms": stage.loop_within_ms}
    return {**data, **{name: value for name, value in {**more, **times}.items() if value}}


def _expression(condition: Condition, stage: str) -> Expression:
    if isinstance(condition, OfColumns):
        return Expression(condition.node)
    if isinstance(condition, Both | Either):
        left, right = _expression(condition.left, stage), _expression(condition.right, stage)
        return left & right if isinstance(condition, Both) else left | right
    raise PatternError(
        f"stage {stage!r} has a condition that is not of columns: {condition.describe()}",
        hint='only expressions such as col("amount") < 1 can be written as JSON',
    )


def pattern_from_data(data: Any) -> Pattern:
    """The pattern that JSON-able data gives, checked. `PlanError` says what is wrong with it."""
    _fields(data, {"version", "stages"}, {"within_ms", "skip"}, "a pattern")
    if data["version"] != VERSION or isinstance(data["version"], bool):
        raise PatternError(f"a pattern of version {data['version']!r:.50}; this Penstock reads version {VERSION}")
    pattern = _stages(data["stages"], depth=0)
    if "within_ms" in data:
        pattern = pattern.within(_ms(data["within_ms"], "within_ms") / 1000)
    if "skip" in data:
        pattern = pattern.skipping(_skip(data["skip"]))
    return pattern.check()


def _stages(data: Any, depth: int) -> Pattern:
    if not isinstance(data, list) or not data or len(data) > MOST_STAGES or depth > 10:
        raise PatternError(
            "a pattern needs stages", detail=f"found: {data!r:.200}", hint=f"give a list of 1 to {MOST_STAGES} stages"
        )
    pattern: Pattern | None = None
    for one in data:
        pattern = _stage(pattern, one, depth)
    assert pattern is not None
    return pattern


def _stage(pattern: Pattern | None, data: Any, depth: int) -> Pattern:
    _fields(data, set(), _STAGE, "a stage")
    if ("name" in data) == ("group" in data):
        raise PatternError("a stage has a name, or is a group", detail=f"found: {data!r:.200}")
    given: Any = data["name"] if "name" in data else _stages(data["group"], depth + 1)
    if "name" in data and not isinstance(given, str):
        raise PatternError(f"the name of a stage is text, not {given!r:.100}")
    if pattern is None:
        if "link" in data:
            raise PatternError("the first stage follows nothing", hint='leave its "link" out')
        made = Pattern.begin(given)
    else:
        link = data.get("link")
        if link not in {one.value for one in Link}:
            raise PatternError(f"link {link!r:.100}", hint=f"choose one of {', '.join(one.value for one in Link)}")
        made = getattr(pattern, link)(given)
    if "where" in data:
        made = made.where(_read(data["where"]))
    if "times" in data:
        made = _times(made, data)
    elif "inner" in data or "times_within_ms" in data:
        raise PatternError("inner and times_within_ms are said of a stage with times", detail=f"found: {data!r:.200}")
    if "until" in data:
        made = made.until(_read(data["until"]))
    if _flag(data, "greedy"):
        made = made.greedy()
    if _flag(data, "optional"):
        made = made.optional()
    if "within_ms" in data:
        made = made.within(_ms(data["within_ms"], "within_ms") / 1000, "previous_and_current")
    return made


def _times(pattern: Pattern, data: dict[str, Any]) -> Pattern:
    times, inner = data["times"], data.get("inner", "followed_by")
    if not isinstance(times, list) or len(times) != 2 or type(times[0]) is not int or type(times[1]) not in (int, type(None)):
        raise PatternError(f"times {times!r:.100}", hint="give [from, to]; to is null where there is no end")
    if inner not in _INNER:
        raise PatternError(f"inner {inner!r:.100}", hint=f"choose one of {', '.join(_INNER)}")
    within = _ms(data["times_within_ms"], "times_within_ms") / 1000 if "times_within_ms" in data else None
    least, most = times
    made = pattern.times_or_more(least, within=within) if most is None else pattern.times(least, most, within=within)
    method = _INNER[inner]
    return made if method is None else getattr(made, method)()


def _skip(data: Any) -> SkipStrategy:
    _fields(data, {"kind"}, {"stage", "fails_on_miss"}, "a skip strategy")
    kind, stage = data["kind"], data.get("stage")
    if kind not in _SKIPS or (stage is not None) != (kind in ("to_first", "to_last")) or not isinstance(stage, str | None):
        raise PatternError(
            f"skip {data!r:.200}", hint=f'choose one of {", ".join(_SKIPS)}; to_first and to_last need the "stage"'
        )
    return SkipStrategy(kind, stage, fails_on_miss=_flag(data, "fails_on_miss"))


def _read(data: Any) -> Expression:
    node, _name = from_data({"version": EXPRESSION_VERSION, "expression": data})
    return Expression(node)


def _fields(data: Any, needed: set[str], more: set[str], what: str) -> None:
    if not isinstance(data, dict):
        raise PatternError(f"{what} is an object", detail=f"found: {data!r:.200}")
    missing, unknown = needed - data.keys(), data.keys() - needed - more
    if missing or unknown:
        problem = f"misses {min(missing)!r}" if missing else f"has the unknown field {min(unknown, key=str)!r}"
        raise PatternError(
            f"{what} {problem}", detail=f"found: {data!r:.200}", hint=f"fields: {', '.join(sorted(needed | more))}"
        )


def _ms(value: Any, name: str) -> int:
    if type(value) is not int or value <= 0:
        raise PatternError(f"{name} {value!r:.100}", hint="give milliseconds, a whole number above zero")
    return value


def _flag(data: dict[str, Any], name: str) -> bool:
    value = data.get(name, False)
    if not isinstance(value, bool):
        raise PatternError(f"{name} {value!r:.100}", hint="give true or false")
    return value
