"""Checks of values against declared types, compiled once for each type.

Laws:
- A check is sound: a value that can be encoded and passes is read back equal.
- It need not pass everything that would be. What it does not pass is settled by reading back what was encoded: see
  `penstock.state.encoding.misfits`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import msgspec.inspect as mi

from penstock.state.encoding.custom import custom_codec
from penstock.state.encoding.schemas import LIMITS

Check = Callable[[Any], bool]

SCALARS: dict[type[mi.Type], type] = {
    mi.NoneType: type(None),
    mi.BoolType: bool,
    mi.IntType: int,
    mi.FloatType: float,
    mi.StrType: str,
    mi.BytesType: bytes,
    mi.ByteArrayType: bytearray,
    mi.DateTimeType: datetime,
    mi.TimeType: time,
    mi.DateType: date,
    mi.TimeDeltaType: timedelta,
    mi.UUIDType: UUID,
    mi.DecimalType: Decimal,
}
CONTAINERS: dict[type[mi.Type], type] = {
    mi.ListType: list,
    mi.SetType: set,
    mi.FrozenSetType: frozenset,
    mi.VarTupleType: tuple,
    mi.TupleType: tuple,
    mi.DictType: dict,
    mi.TypedDictType: dict,
}
_ITEMS = (mi.ListType, mi.SetType, mi.FrozenSetType, mi.VarTupleType)
_OBJECTS = (mi.StructType, mi.DataclassType, mi.NamedTupleType)

EXACT_FLOATS = 2**53
"""Integers up to this are floats without a loss."""

_PLAIN = frozenset((int, float, str, bytes, bool, type(None)))


def outer_types(info: mi.Type) -> tuple[type, ...] | None:
    """The classes that values of a type are instances of, the usual one first; None: of any class."""
    info = unwrapped(info)
    kind = type(info)
    if kind in SCALARS:
        return (SCALARS[kind],)
    if kind in CONTAINERS:
        return (CONTAINERS[kind],)
    if isinstance(info, (*_OBJECTS, mi.EnumType)) or (isinstance(info, mi.CustomType) and info.cls is not object):
        return (info.cls,)
    if isinstance(info, mi.LiteralType):
        return tuple({type(value): None for value in info.values})
    if isinstance(info, mi.UnionType):
        members = [outer_types(member) for member in info.types]
        found = [one for member in members if member is not None for one in member]
        return None if None in members else tuple(sorted(found, key=lambda one: one is type(None)))
    return None


def compile_check(info: mi.Type) -> Check:
    """The check of a type."""
    compiler = _Compiler()
    name = compiler.function(info)
    exec("\n".join(compiler.lines), compiler.names)
    check: Check = compiler.names[name]
    return check


def comes_back(value: Any) -> bool:
    """Is a value of no declared type, inside one that has a type, read back as it is?"""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is list:
        return _PLAIN.issuperset(map(type, value)) or all(map(comes_back, value))
    if kind is dict:
        return _PLAIN.issuperset(map(type, value)) and all(map(comes_back, value.values()))
    return False


def unwrapped(info: mi.Type) -> mi.Type:
    while isinstance(info, mi.Metadata):
        info = info.type
    return info


def limits_of(info: mi.Type) -> dict[str, Any]:
    """What `msgspec.Meta` says about a type."""
    return {name: limit for name in LIMITS if (limit := getattr(info, name, None)) is not None}


class _Compiler:
    """Writes a function for each type that needs statements, and conditions for the others."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"comes_back": comes_back, "UNSET": msgspec.UNSET}
        self.lines: list[str] = []
        self._functions: dict[int, str] = {}
        self._bound: dict[int, str] = {}

    def function(self, info: mi.Type) -> str:
        """The name of the function that checks a type; a type inside itself calls its own."""
        info = unwrapped(info)
        if id(info) not in self._functions:
            name = self._functions[id(info)] = f"check_{len(self._functions)}"
            self.names[f"{name}_info"] = info  # as long as it lives, no other has its id
            body = self._body(info)
            self.lines += [f"def {name}(v):", *(f"    {line}" for line in body)]
        return self._functions[id(info)]

    def _body(self, info: mi.Type) -> list[str]:
        if limits_of(info) or not isinstance(info, (*_OBJECTS, mi.TupleType, mi.TypedDictType)):
            return [f"return {self._condition(info, 'v')}"]
        if isinstance(info, mi.TupleType):
            names = [f"v{number}" for number in range(len(info.item_types))]
            inside = [self._condition(item, name) for item, name in zip(info.item_types, names, strict=True)]
            return [
                f"if type(v) is not tuple or len(v) != {len(names)}: return False",
                *([f"{', '.join(names)}, = v"] if names else []),
                f"return {' and '.join(inside) or 'True'}",
            ]
        if isinstance(info, mi.TypedDictType):
            return self._typed_dict(info)
        if hasattr(info.cls, "__post_init__"):
            return ["return False"]  # called again when the value is read, it may change it
        lines = [f"if type(v) is not {self._name(info.cls)}: return False"]
        for field in info.fields:
            condition = self._condition(field.type, "a")
            if not field.required and field.default is field.default_factory is msgspec.NODEFAULT:
                condition = f"a is UNSET or {condition}"
            lines += [f"a = v.{field.name}", f"if not ({condition}): return False"]
        return [*lines, "return True"]

    def _typed_dict(self, info: mi.TypedDictType) -> list[str]:
        known = self._name(frozenset(field.encode_name for field in info.fields))
        lines = [f"if type(v) is not dict or not {known}.issuperset(v): return False"]
        for field in info.fields:
            test = [f"if not ({self._condition(field.type, 'a')}): return False"]
            key = repr(field.encode_name)
            if field.required:
                lines += [f"if {key} not in v: return False", f"a = v[{key}]", *test]
            else:
                lines += [f"if {key} in v:", *(f"    {line}" for line in [f"a = v[{key}]", *test])]
        return [*lines, "return True"]

    def _condition(self, info: mi.Type, v: str) -> str:
        """An expression about the variable `v`."""
        info = unwrapped(info)
        if limits_of(info):
            return "False"
        if isinstance(info, mi.UnionType):
            members = sorted(info.types, key=lambda member: not isinstance(member, mi.NoneType))
            return "(" + " or ".join(self._condition(member, v) for member in members) + ")"
        if isinstance(info, mi.LiteralType):
            kinds = {type(value): None for value in info.values}
            tests = [
                f"(type({v}) is {self._name(kind)} and {v} in {tuple(one for one in info.values if type(one) is kind)!r})"
                for kind in kinds
            ]
            return "(" + " or ".join(tests) + ")"
        if isinstance(info, mi.NoneType):
            return f"{v} is None"
        if isinstance(info, mi.FloatType):
            exact = f"type({v}) is int and {-EXACT_FLOATS} <= {v} <= {EXACT_FLOATS}"
            return f"(type({v}) is float or ({exact}))"
        if isinstance(info, mi.TimeType):
            return f"(type({v}) is {self._name(time)} and {v}.tzinfo is None)"
        if type(info) in SCALARS:
            return f"type({v}) is {self._name(SCALARS[type(info)])}"
        if isinstance(info, mi.EnumType):
            return f"type({v}) is {self._name(info.cls)}"
        if isinstance(info, _ITEMS):
            return f"(type({v}) is {CONTAINERS[type(info)].__name__} and {self._all(info.item_type, v)})"
        if isinstance(info, mi.DictType):
            keys, values = self._all(info.key_type, v), self._all(info.value_type, f"{v}.values()")
            return f"(type({v}) is dict and {keys} and {values})"
        if isinstance(info, (*_OBJECTS, mi.TupleType, mi.TypedDictType)):
            return f"{self.function(info)}({v})"
        if isinstance(info, mi.CustomType) and info.cls is not object:
            return f"type({v}) is {self._name(info.cls)}" if custom_codec(info.cls) is not None else "False"
        return f"comes_back({v})"

    def _all(self, item: mi.Type, items: str) -> str:
        """A condition for each of the items."""
        item = unwrapped(item)
        plain = (type(item) in SCALARS or isinstance(item, mi.EnumType)) and not limits_of(item)
        if not plain or isinstance(item, mi.TimeType):
            return f"all(map({self.function(item)}, {items}))"
        only = outer_types(item) or ()
        same = f"{self._name(frozenset(only))}.issuperset(map(type, {items}))"
        return f"({same} or all(map({self.function(item)}, {items})))" if isinstance(item, mi.FloatType) else same

    def _name(self, value: Any) -> str:
        """A name for something in the code."""
        if isinstance(value, type) and value.__module__ == "builtins" and value is not type(None):
            return value.__name__
        if id(value) not in self._bound:
            name = self._bound[id(value)] = f"name_{len(self.names)}"
            self.names[name] = value
        return self._bound[id(value)]
