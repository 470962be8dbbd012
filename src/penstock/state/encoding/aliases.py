"""Former names of fields.

An alias says what a field was called, by a path such as `address.street`; lists, dicts, tuples and unions on the way are passed
through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.errors import PlanError

Path = tuple[str, ...]


class Aliases:
    """Former names of fields, by where they are now.

    >>> Aliases({"addr": "address", "addr.zip": "postcode"}).former(("address", "postcode"))
    ('zip',)
    """

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self.given = dict(given or {})
        self._former: dict[Path, tuple[str, ...]] = {}
        moved: dict[Path, Path] = {}
        for old, new in sorted((given or {}).items(), key=lambda item: item[0].count(".")):
            old_path, new_path = tuple(old.split(".")), tuple(new.split("."))
            parent = _moved(old_path[:-1], moved)
            if len(new_path) == 1:
                new_path = (*parent, *new_path)
            if not all((*old_path, *new_path)) or new_path[:-1] != parent:
                raise PlanError(
                    f"aliases={{{old!r}: {new!r}}} moves a field to another record",
                    hint='an alias is another name in the same place: {"address.zip": "postcode"}; for more there is migrate=',
                )
            moved[old_path] = new_path
            self._former[new_path] = (*self._former.get(new_path, ()), old_path[-1])

    def __bool__(self) -> bool:
        return bool(self._former)

    def former(self, path: Path) -> tuple[str, ...]:
        return self._former.get(path, ())

    def check(self, declared: object, where: str) -> None:
        """Every alias must lead to a field of the declared type, and from a name that it does not have."""
        there = set(_paths(declared, ()))
        for path, former in self._former.items():
            if path not in there:
                raise PlanError(
                    f"aliases of {where} lead to the field {'.'.join(path)!r}, which its type does not have",
                    detail=f"fields: {', '.join('.'.join(one) for one in sorted(there)) or 'none'}",
                    hint="an alias is {former name: name in the type}",
                )
            for name in former:
                if (*path[:-1], name) in there:
                    raise PlanError(
                        f"aliases of {where} say that {name!r} is called {path[-1]!r} now, but its type has both",
                        hint="take the alias away, or call the new field something else",
                    )


def _moved(path: Path, moved: Mapping[Path, Path]) -> Path:
    for length in range(len(path), 0, -1):
        if path[:length] in moved:
            return (*moved[path[:length]], *path[length:])
    return path


def _paths(schema: Any, path: Path) -> Iterator[Path]:
    for member in members(schema):
        if not isinstance(member, dict):
            continue
        if "record" in member:
            for one in member["fields"]:
                here = (*path, one["name"])
                yield here
                yield from _paths(one["type"], here)
        else:
            for part in inner(member):
                yield from _paths(part, path)


def members(schema: Any) -> list[Any]:
    """The types of a union, or the type itself."""
    if isinstance(schema, dict) and "union" in schema:
        return [one for each in schema["union"] for one in members(each)]
    if isinstance(schema, dict) and None in schema.get("literal", ()):
        rest = [value for value in schema["literal"] if value is not None]
        return [*([{"literal": rest}] if rest else []), "none"]
    return [schema]


def inner(schema: Mapping[str, Any]) -> list[Any]:
    """The types that a container (or a type with limits) is made of."""
    kind, part = next(iter(schema.items()))
    if kind in ("list", "tuple_of", "set", "frozenset", "constrained"):
        return [part]
    return list(part) if kind in ("tuple", "dict") else []


def parts(schema: Mapping[str, Any]) -> list[Any]:
    """Those of a container or a union."""
    return list(schema["union"]) if "union" in schema else inner(schema)
