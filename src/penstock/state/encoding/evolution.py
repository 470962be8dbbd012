"""Can values that were stored under one schema be read as another? Pure.

    compatible     the stored bytes are read as they are
    migrates       every stored value is rewritten when the job starts
    incompatible   refused

Laws:
- `compatible` is a promise about bytes: msgspec decodes every value that was encoded by the stored type, and what comes out has
  the stored value of every field that is still there, and the default of every field that is new.
- Nothing is lost unnoticed: where two different values could become one (in sets, among keys of dicts) nothing may be narrowed or
  widened.
- Names of classes do not matter, names of fields do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from penstock.state.encoding.aliases import Aliases, Path, members, parts
from penstock.state.encoding.schemas import schema_text

Verdict = Literal["compatible", "migrates", "incompatible"]

_ORDER: tuple[Verdict, ...] = ("compatible", "migrates", "incompatible")
_PLAIN = frozenset(("none", "bool", "int", "float", "str", "bytes"))
_ITEMS = ("list", "tuple_of")
_MEMBERS = ("set", "frozenset")


class TypeChange(NamedTuple):
    """One difference, in words that name the field."""

    verdict: Verdict
    text: str


def worst(notes: Iterable[TypeChange]) -> Verdict:
    return max((note.verdict for note in notes), key=_ORDER.index, default="compatible")


def compare(stored: object, declared: object, aliases: Aliases | None = None) -> list[TypeChange]:
    """What is different, and what that means for stored values.

    >>> [note.text for note in compare("int", "float")]
    ['the value was int and is float now']
    """
    return _Comparison(aliases or Aliases()).types(stored, declared, _At())


def carried(stored: Any, declared: Any) -> Any:
    """The schema of values that were stored as `stored`, once a program has gone on with them as `declared`, which can read them.

    A field that is new is in few of them; in the others it is its default, whatever a later program says.
    """
    if not isinstance(stored, dict) or not isinstance(declared, dict) or "recursive" in stored or "recursive" in declared:
        return stored
    if "union" in declared and "union" not in stored:
        return _carried_member(stored, members(declared))
    if "union" in stored:
        return {"union": [_carried_member(one, members(declared)) for one in stored["union"]]}
    kind = next(iter(stored))
    if kind != next(iter(declared)):
        return stored
    if kind == "record":
        wanted = {one["name"]: one for one in declared["fields"]}
        fields = [{**one, "type": carried(one["type"], wanted.get(one["name"], one)["type"])} for one in stored["fields"]]
        there = {one["name"] for one in fields}
        added = [one for one in declared["fields"] if one["name"] not in there and not one["required"]]
        return {**stored, "fields": [*fields, *({**one, "absent": True} for one in added if "'recursive'" not in repr(one))]}
    if kind == "constrained" or kind in _ITEMS or kind in _MEMBERS:
        return {**stored, kind: carried(stored[kind], declared[kind])}
    if kind in ("tuple", "dict") and len(stored[kind]) == len(declared[kind]):
        return {kind: [carried(one, other) for one, other in zip(stored[kind], declared[kind], strict=True)]}
    return stored


def _carried_member(one: Any, others: list[Any]) -> Any:
    alike = [other for other in others if _head(one) == _head(other)]
    return carried(one, alike[0]) if len(alike) == 1 else one


@dataclass(frozen=True, slots=True)
class _At:
    """Where in the two types we are. `exact`: among values that must stay different."""

    path: Path = ()
    exact: bool = False
    olds: Mapping[str, Any] = field(default_factory=dict)
    news: Mapping[str, tuple[Any, Path]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"field {'.'.join(self.path)!r}" if self.path else "the value"


class _Comparison:
    def __init__(self, aliases: Aliases) -> None:
        self._aliases = aliases
        self._assumed: set[tuple[int, int]] = set()

    def types(self, old: Any, new: Any, at: _At) -> list[TypeChange]:
        if _is(old, "recursive"):
            old = at.olds[old["recursive"]]
        if _is(new, "recursive"):
            new, path = at.news[new["recursive"]]
            at = replace(at, path=path)
        if _is(old, "union") or _is(new, "union") or _is(old, "literal") or _is(new, "literal"):
            olds, news = members(old), members(new)
            if len(olds) > 1 or len(news) > 1:
                return self._unions(old, new, olds, news, at)
        if _is(old, "constrained") or _is(new, "constrained"):
            return self._constrained(old, new, at)
        if isinstance(old, str) and old == new:
            return []
        if new == "any":
            return [TypeChange("compatible" if _is_plain(old) else "incompatible", _was(old, new, at))]
        if old == "int" and new == "float" and not at.exact:
            return [TypeChange("compatible", _was(old, new, at))]
        if _is(old, "record") and _is(new, "record"):
            return self._records(old, new, at)
        if _is(old, "enum") and _is(new, "enum"):
            return _values("member", list(old["values"].values()), list(new["values"].values()), at)
        if _is(old, "literal"):
            if _is(new, "literal"):
                return _values("value", old["literal"], new["literal"], at)
            if all(type(value).__name__ == new for value in old["literal"]):
                return [TypeChange("compatible", _was(old, new, at))]
        if isinstance(old, dict) and isinstance(new, dict) and next(iter(old)) == next(iter(new)):
            return self._containers(old, new, at)
        return [TypeChange("incompatible", _was(old, new, at))]

    def _containers(self, old: Any, new: Any, at: _At) -> list[TypeChange]:
        kind = next(iter(old))
        if kind in _ITEMS:
            return self.types(old[kind], new[kind], at)
        if kind in _MEMBERS:
            return self.types(old[kind], new[kind], replace(at, exact=True))
        if kind == "dict":
            keys = self.types(old[kind][0], new[kind][0], replace(at, exact=True))
            return [
                *(TypeChange(note.verdict, f"keys: {note.text}") for note in keys),
                *self.types(old[kind][1], new[kind][1], at),
            ]
        if kind == "tuple" and len(old[kind]) == len(new[kind]):
            return [note for a, b in zip(old[kind], new[kind], strict=True) for note in self.types(a, b, at)]
        return [] if old == new else [TypeChange("incompatible", _was(old, new, at))]

    def _unions(self, old: Any, new: Any, olds: list[Any], news: list[Any], at: _At) -> list[TypeChange]:
        found: list[TypeChange] = []
        for one in olds:
            tried = [self.types(one, other, at) for other in news if not _shadowed(one, other, news)]
            best = min(tried, key=lambda notes: _ORDER.index(worst(notes)), default=None)
            if best is not None and worst(best) != "incompatible":
                found += best
                continue
            alike = [self.types(one, other, at) for other in news if _head(one) == _head(other)]
            found += (
                alike[0]
                if len(alike) == 1
                else [TypeChange("incompatible", f"{at} may be {schema_text(one)}, which it may not now")]
            )
        if len(news) != len(olds) and worst(found) != "incompatible":
            found.append(TypeChange("compatible", _was(old, new, at)))
        return found

    def _constrained(self, old: Any, new: Any, at: _At) -> list[TypeChange]:
        limits = old["by"] if _is(old, "constrained") else {}
        wanted = new["by"] if _is(new, "constrained") else {}
        found = self.types(old["constrained"] if limits else old, new["constrained"] if wanted else new, at)
        if any(limits.get(name) != limit for name, limit in wanted.items()):
            found.append(
                TypeChange("incompatible", f"{at} has limits now that stored values were not held to: {schema_text(new)}")
            )
        return found

    def _records(self, old: Any, new: Any, at: _At) -> list[TypeChange]:
        pair = id(old), id(new)  # names of classes may be the same
        if pair in self._assumed:
            return []
        if old["form"] != new["form"]:
            return [TypeChange("incompatible", f"{at} was kept as {_form(old)} and is kept as {_form(new)} now")]
        if old.get("tag") != new.get("tag"):
            return [TypeChange("incompatible", f"{at} has the tag {_tag(new)} now, stored values have {_tag(old)}")]
        news = {**at.news, new["record"]: (new, at.path)}
        inside = replace(at, olds={**at.olds, old["record"]: old}, news=news)
        self._assumed.add(pair)
        try:
            return self._by_place(old, new, inside) if new["form"] == "array" else self._by_name(old, new, inside)
        finally:
            self._assumed.discard(pair)

    def _by_name(self, old: Any, new: Any, at: _At) -> list[TypeChange]:
        found: list[TypeChange] = []
        stored = {one["name"]: one for one in old["fields"]}
        used: set[str] = set()
        for one in new["fields"]:
            here = replace(at, path=(*at.path, one["name"]))
            former = [name for name in self._aliases.former(here.path) if name in stored]
            names = [*former, *([one["name"]] if one["name"] in stored else [])]
            if len(names) > 1:
                found.append(TypeChange("incompatible", f"{here} is stored under several names: {', '.join(map(repr, names))}"))
            elif not names:
                found.append(_added(one, here))
            else:
                if former:
                    found.append(TypeChange("migrates", f"{here} was called {former[0]!r}"))
                found += self._same_field(stored[names[0]], one, here)
            used.update(names)
        for name in stored:
            if name not in used:
                here = replace(at, path=(*at.path, name))
                refused = new.get("closed") or at.exact
                why = " (its record may have no unknown fields)" if new.get("closed") else ""
                found.append(TypeChange("incompatible" if refused else "compatible", f"{here} is gone{why}"))
        return found

    def _same_field(self, old: Any, new: Any, at: _At) -> list[TypeChange]:
        found = self.types(old["type"], new["type"], at)
        if old.get("absent") and new["required"]:
            found.append(TypeChange("incompatible", f"{at} is not in every stored value, and has no default now"))
        elif old.get("absent") and "default" in old and old["default"] != new.get("default", ...):
            found.append(
                TypeChange(
                    "incompatible", f"{at} was not stored where it was {old['default']!r}, and that is not its default now"
                )
            )
        return found

    def _by_place(self, old: Any, new: Any, at: _At) -> list[TypeChange]:
        """Records kept as arrays: a field is where it is."""
        found: list[TypeChange] = []
        for number, one in enumerate(new["fields"]):
            here = replace(at, path=(*at.path, one["name"]))
            if number >= len(old["fields"]):
                found.append(_added(one, here))
                continue
            was = old["fields"][number]
            if was["name"] != one["name"]:
                if was["name"] not in self._aliases.former(here.path):
                    place = f"{here} is at place {number}, where {was['name']!r} is stored"
                    found.append(TypeChange("incompatible", f"{place}: fields without names can only be appended"))
                    continue
                found.append(TypeChange("migrates", f"{here} was called {was['name']!r}"))
            found += self._same_field(was, one, here)
        for was in old["fields"][len(new["fields"]) :]:
            here = replace(at, path=(*at.path, was["name"]))
            found.append(TypeChange("incompatible", f"{here} is gone, from a record without field names"))
        return found


def _added(one: Mapping[str, Any], at: _At) -> TypeChange:
    if one["required"]:
        return TypeChange("incompatible", f"{at} is new and has no default")
    return TypeChange("compatible", f"{at} is new; stored values get its default")


def _values(what: str, old: list[Any], new: list[Any], at: _At) -> list[TypeChange]:
    """Enums and literals: by value, for that is what is stored."""
    kept = [(type(value), value) for value in new]
    gone = [value for value in old if (type(value), value) not in kept]
    if gone:
        return [TypeChange("incompatible", f"{at} may not be {', '.join(map(repr, gone))} any more")]
    more = len(new) - len(old)
    return [TypeChange("compatible", f"{at} has {more} {what}{'s' if more > 1 else ''} more")] if more else []


def _shadowed(old: Any, new: Any, news: list[Any]) -> bool:
    """An int becomes a float only where no other type of a union takes integers."""
    return _head(old) == "int" and _head(new) == "float" and any(_takes_int(one) for one in news)


def _takes_int(schema: Any) -> bool:
    if _is(schema, "constrained"):
        return _takes_int(schema["constrained"])
    values = schema.get("values", {}).values() if _is(schema, "enum") else schema["literal"] if _is(schema, "literal") else ()
    return schema == "int" or any(isinstance(value, int) for value in values)


def _is(schema: Any, kind: str) -> bool:
    return isinstance(schema, dict) and kind in schema


def _head(schema: Any) -> object:
    """What kind of type, for telling which of a union's types another one is like."""
    if _is(schema, "constrained"):
        return _head(schema["constrained"])
    if _is(schema, "record") or _is(schema, "recursive"):
        return "record", str(schema.get("tag"))
    return next(iter(schema)) if isinstance(schema, dict) else schema


def _is_plain(schema: Any) -> bool:
    """Is a value the same when it is read without a type?"""
    if isinstance(schema, str):
        return schema in _PLAIN or schema == "any"
    return next(iter(schema)) in ("list", "dict", "union", "constrained", "literal") and all(map(_is_plain, parts(schema)))


def _was(old: Any, new: Any, at: _At) -> str:
    return f"{at} was {schema_text(old)} and is {schema_text(new)} now"


def _form(record: Mapping[str, Any]) -> str:
    return "an array" if record["form"] == "array" else "a map of its fields"


def _tag(record: Mapping[str, Any]) -> str:
    return repr(record["tag"][1]) if "tag" in record else "none"


def needs_trust(schema: object) -> bool:
    """Can reading values of this schema run code that they bring?"""
    return _is(schema, "pickle")
