"""What a type is, as plain JSON: kept in snapshots, compared when a job comes back with other types.

    "int", "str", "any", ...                       a built-in
    {"list": item}, {"dict": [key, value]}, ...    a container
    {"union": [types]}                             Optional is a union with "none"
    {"record": name, "form": "map", "fields": [{"name", "type", "required"}]}    dataclass, struct, NamedTuple, TypedDict
    {"recursive": name}                            a record inside itself
    {"custom": name}                               a registered codec

Law: equal types have equal schemas, in any process.
"""

from __future__ import annotations

from typing import Any

import msgspec.inspect as mi

from penstock.errors import StateError
from penstock.state.custom import custom_codec

_SCALARS: dict[type, str] = {
    mi.AnyType: "any",
    mi.NoneType: "none",
    mi.BoolType: "bool",
    mi.IntType: "int",
    mi.FloatType: "float",
    mi.StrType: "str",
    mi.BytesType: "bytes",
    mi.ByteArrayType: "bytearray",
    mi.DateTimeType: "datetime",
    mi.TimeType: "time",
    mi.DateType: "date",
    mi.TimeDeltaType: "timedelta",
    mi.UUIDType: "uuid",
    mi.DecimalType: "decimal",
}
_ITEMS: dict[type, str] = {mi.ListType: "list", mi.SetType: "set", mi.FrozenSetType: "frozenset", mi.VarTupleType: "tuple_of"}
_CHANGEABLE = (mi.AnyType, mi.ByteArrayType, mi.ListType, mi.SetType, mi.DictType, mi.TypedDictType, mi.MemoryViewType)
_RECORDS = (mi.StructType, mi.DataclassType, mi.NamedTupleType, mi.TypedDictType)


def describe(info: mi.Type, inside: tuple[type, ...] = ()) -> object:
    """The schema of a type, from what msgspec says about it."""
    kind = type(info)
    if kind in _SCALARS:
        return _SCALARS[kind]
    if isinstance(info, (mi.ListType, mi.SetType, mi.FrozenSetType, mi.VarTupleType)):
        return {_ITEMS[kind]: describe(info.item_type, inside)}
    if isinstance(info, mi.TupleType):
        return {"tuple": [describe(t, inside) for t in info.item_types]}
    if isinstance(info, mi.DictType):
        return {"dict": [describe(info.key_type, inside), describe(info.value_type, inside)]}
    if isinstance(info, mi.UnionType):
        return {"union": sorted((describe(t, inside) for t in info.types), key=repr)}
    if isinstance(info, mi.EnumType):
        return {"enum": _name(info.cls), "values": {m.name: m.value for m in info.cls}}
    if isinstance(info, mi.LiteralType):
        return {"literal": list(info.values)}
    if isinstance(info, _RECORDS):
        return _record(info, inside)
    if isinstance(info, mi.CustomType):
        if info.cls is object:
            return "any"
        found = custom_codec(info.cls)
        if found is not None:
            return {"custom": found.name}
        raise StateError(
            f"{_name(info.cls)} cannot be kept in state: MessagePack does not know it",
            hint="make it a dataclass, a NamedTuple or a msgspec.Struct, or teach it with register_codec(...)",
        )
    raise StateError(f"a {kind.__name__} cannot be kept in state", hint="use built-ins, dataclasses or structs")


def _record(info: mi.StructType | mi.DataclassType | mi.NamedTupleType | mi.TypedDictType, inside: tuple[type, ...]) -> object:
    name = _name(info.cls)
    if info.cls in inside:
        return {"recursive": name}
    array = isinstance(info, mi.NamedTupleType) or (isinstance(info, mi.StructType) and info.array_like)
    schema: dict[str, object] = {"record": name, "form": "array" if array else "map"}
    if isinstance(info, mi.StructType) and info.tag is not None:
        schema["tag"] = [info.tag_field, info.tag]
    schema["fields"] = [
        {"name": f.encode_name, "type": describe(f.type, (*inside, info.cls)), "required": f.required} for f in info.fields
    ]
    return schema


def is_mutable(info: mi.Type, inside: tuple[type, ...] = ()) -> bool:
    """May a value of this type be changed in place, so that it must be encoded again to be compared?"""
    if isinstance(info, _CHANGEABLE):
        return True
    if isinstance(info, (mi.FrozenSetType, mi.VarTupleType)):
        return is_mutable(info.item_type, inside)
    if isinstance(info, mi.TupleType):
        return any(is_mutable(t, inside) for t in info.item_types)
    if isinstance(info, mi.UnionType):
        return any(is_mutable(t, inside) for t in info.types)
    if isinstance(info, (mi.StructType, mi.DataclassType, mi.NamedTupleType)):
        if info.cls in inside:
            return False  # decided by the fields outside the recursion
        return not _is_frozen(info) or any(is_mutable(f.type, (*inside, info.cls)) for f in info.fields)
    if isinstance(info, mi.CustomType):
        found = custom_codec(info.cls)
        return found is None or found.mutable
    return False


def _is_frozen(info: mi.StructType | mi.DataclassType | mi.NamedTupleType) -> bool:
    if isinstance(info, mi.NamedTupleType):
        return True
    cls: Any = info.cls
    parameters = cls.__struct_config__ if isinstance(info, mi.StructType) else getattr(cls, "__dataclass_params__", None)
    return bool(parameters is not None and parameters.frozen)


def _name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
