"""What a record of the rule stream asks for, and what becomes of the rule set. Pure.

    {"rule": "small-then-big", "version": 2, "pattern": {…}, "on_change": "keep"}        adds or changes a rule
    {"rule": "small-then-big", "remove": true}                                         removes it

A record is an object, or its JSON as text. Without a version it is one more than the rule has. `on_change` says what becomes of
the partial matches of the version before: with `keep`, the default, they go on if the shape is the same; `drop` drops them.

Laws:
- The versions of a rule only go up, also over its removal. A record of a version that the rule has already, with the same
  pattern, changes nothing; with another pattern, or of an older version, it is refused.
- What is refused changes nothing.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock.cep.checking import PatternError
from penstock.cep.compiling import compile_pattern, shape_of
from penstock.cep.rules.json_form import pattern_from_data, pattern_to_data
from penstock.errors import PenstockError

MAX_BYTES = 1 << 20

OnChange = Literal["keep", "drop"]


class StoredRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rule as it is kept. `valid_from`: partial matches of older versions are dropped. No pattern: it has been removed."""

    version: int
    valid_from: int
    pattern: str | None = None


class RuleChange(msgspec.Struct, frozen=True):
    """What is asked for."""

    rule: str
    version: int | None = None
    pattern: str | None = None
    on_change: OnChange = "keep"


class RejectedRule(msgspec.Struct, frozen=True):
    """A record of the rule stream that was refused, and why."""

    record: Any
    error: str
    detail: str = ""
    hint: str = ""


def change_of(record: Any) -> RuleChange:
    """What a record asks for. `PlanError` if it is malformed."""
    data = decoded(record)
    known = {"rule", "version", "pattern", "on_change", "remove"}
    if not isinstance(data, dict) or data.keys() - known or not isinstance(data.get("rule"), str) or not data["rule"]:
        raise PatternError(
            "this is no rule",
            detail=f"found: {data!r:.200}",
            hint='give {"rule": id, "version": number, "pattern": {...}, "on_change": "keep"}, or {"rule": id, "remove": true}',
        )
    version = data.get("version")
    if version is not None and (type(version) is not int or version < 1):
        raise PatternError(f"rule {data['rule']!r}: version {version!r:.100}", hint="versions are numbers from 1 on")
    if "remove" in data:
        if data["remove"] is not True or "pattern" in data:
            raise PatternError(f"rule {data['rule']!r}: remove is true, and there is no pattern", detail=f"found: {data!r:.200}")
        return RuleChange(data["rule"], version)
    on_change = data.get("on_change", "keep")
    if on_change not in ("keep", "drop"):
        raise PatternError(f"rule {data['rule']!r}: on_change {on_change!r:.100}", hint='choose "keep" or "drop"')
    pattern = pattern_from_data(data.get("pattern"))
    compile_pattern(pattern)
    text = msgspec.json.encode(pattern_to_data(pattern), order="sorted").decode()
    return RuleChange(data["rule"], version, text, on_change)


def decide(change: RuleChange, now: StoredRule | None) -> StoredRule | None:
    """What is kept of the rule from now on; None: nothing changes. `PatternError` if the change is refused."""
    if change.pattern is None and (now is None or now.pattern is None):
        raise PatternError(f"there is no rule {change.rule!r} to remove")
    newest = 0 if now is None else now.version
    version = newest + 1 if change.version is None else change.version
    if now is not None and change.pattern == now.pattern and (version == newest or change.version is None):
        return None
    if version <= newest:
        raise PatternError(
            f"rule {change.rule!r} has version {newest} already, and version {version} comes", hint="give it a higher version"
        )
    if now is None or now.pattern is None or change.pattern is None:
        return StoredRule(version, version, change.pattern)
    goes_on = change.on_change == "keep" and _shape(change.pattern) == _shape(now.pattern)
    return StoredRule(version, now.valid_from if goes_on else version, change.pattern)


def rejected(record: Any, error: PenstockError) -> RejectedRule:
    return RejectedRule(record, error.what, error.detail, error.hint)


def _shape(pattern: str) -> str:
    return shape_of(pattern_from_data(msgspec.json.decode(pattern)))


def decoded(record: Any) -> Any:
    if not isinstance(record, str | bytes):
        return record
    if len(record) > MAX_BYTES:
        raise PatternError(f"the JSON of a rule is longer than {MAX_BYTES:,} characters")
    try:
        return msgspec.json.decode(record)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise PatternError("this is not JSON", detail=str(error)) from error
