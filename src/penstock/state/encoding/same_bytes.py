"""Do two types write the same bytes? Pure, over their schemas."""

from __future__ import annotations

from typing import Any

from penstock.state.encoding.aliases import parts

_EXACT_KEYS = frozenset(("none", "bool", "int", "str", "bytes"))


def same(stored: object, declared: object) -> bool:
    """Do both write the same bytes? Names of classes and defaults do not matter."""
    return _normal(stored, ()) == _normal(declared, ())


def _normal(schema: Any, outer: tuple[str, ...]) -> object:
    if not isinstance(schema, dict):
        return schema
    if "recursive" in schema:
        return {"up": outer[::-1].index(schema["recursive"])}
    if "record" in schema:
        inside = (*outer, schema["record"])
        fields = [(f["name"], _normal(f["type"], inside), f.get("absent") and repr(f.get("default"))) for f in schema["fields"]]
        return {"form": schema["form"], "tag": schema.get("tag"), "fields": fields}
    if "enum" in schema:
        return {"values": sorted(schema["values"].values(), key=repr)}
    if "constrained" in schema:
        return _normal(schema["constrained"], outer)
    if "union" in schema:
        return {"union": sorted((_normal(one, outer) for one in schema["union"]), key=repr)}
    kind, part = next(iter(schema.items()))
    if kind in ("tuple", "dict"):
        return {kind: [_normal(one, outer) for one in part]}
    return {kind: _normal(part, outer)} if kind in ("list", "tuple_of", "set", "frozenset") else schema


def same_keys(stored: object, declared: object) -> bool:
    """Is a stored key found again? Keys are looked up by their bytes, so these must be the same.

    Without a type keys are written as they are: so are integers, strings, bytes, booleans, None, and tuples of these with one.
    """
    stored, declared = ("any" if one is None else one for one in (stored, declared))
    return same(stored, declared) or (declared == "any" and _is_exact_key(stored))


def _is_exact_key(schema: Any) -> bool:
    if isinstance(schema, str):
        return schema in _EXACT_KEYS
    return next(iter(schema)) in ("tuple", "tuple_of", "union", "constrained") and all(map(_is_exact_key, parts(schema)))
