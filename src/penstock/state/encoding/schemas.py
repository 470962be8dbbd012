"""What a type is, as plain JSON: kept in snapshots, compared when a job comes back with other types.

    "int", "str", "any", ...                       a built-in
    {"list": item}, {"dict": [key, value]}, ...    a container
    {"union": [types]}                             Optional is a union with "none"
    {"record": name, "form": "map",                dataclass, struct, NamedTuple, TypedDict
     "fields": [{"name", "type", "required", "default"}]}
    {"recursive": name}                            a record inside itself
    {"custom": name}                               a registered codec
    {"constrained": type, "by": {"ge": 0}}         a type with limits (`msgspec.Meta`)

A record that refuses fields it does not know is `"closed"`. A field that a stored value may lack is `"absent"`; it means its
default then, if it has one.

Law: equal types have equal schemas, in any process.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import msgspec
import msgspec.inspect as mi

from penstock.errors import StateError
from penstock.state.encoding.custom import custom_codec

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
LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
_EMPTY = (list, dict, set)
_RECORDS = (mi.StructType, mi.DataclassType, mi.NamedTupleType, mi.TypedDictType)


def describe(info: mi.Type, inside: tuple[type, ...] = ()) -> object:
    """The schema of a type, from what msgspec says about it."""
    if isinstance(info, mi.Metadata):
        return describe(info.type, inside)
    schema = _describe(info, inside)
    limits = {name: limit for name in LIMITS if (limit := getattr(info, name, None)) is not None}
    return {"constrained": schema, "by": limits} if limits else schema


def _describe(info: mi.Type, inside: tuple[type, ...]) -> object:
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
    if isinstance(info, mi.StructType) and info.forbid_unknown_fields:
        schema["closed"] = True
    schema["fields"] = [
        {
            "name": f.encode_name,
            "type": describe(f.type, (*inside, info.cls)),
            "required": f.required,
            **_default(f),
            **({} if array else _absence(info, f)),
        }
        for f in info.fields
    ]
    return schema


def _default(field: mi.Field) -> dict[str, object]:
    """What the field is where nobody says, if that can be written down and is the same every time."""
    if field.default_factory is not msgspec.NODEFAULT:
        try:
            first, second = (_plain(field.default_factory()) for _ in range(2))
        except Exception:  # it is the user's
            return {}
        return {"default": first} if first == second else {}
    if field.default is msgspec.NODEFAULT:
        return {}
    try:
        default = _plain(field.default)
    except (msgspec.MsgspecError, TypeError, ValueError):
        return {}
    return {} if " at 0x" in repr(default) else {"default": default}


def _plain(value: object) -> object:
    """A value as JSON has it, the same in every process; numbers that JSON does not know as text."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=repr, order="deterministic"))


def _absence(info: mi.StructType | mi.DataclassType | mi.NamedTupleType | mi.TypedDictType, field: mi.Field) -> dict[str, object]:
    """May a stored record lack the field, and what does that mean?"""
    if field.required:
        return {}
    if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
        return {"absent": True}  # a key that is not required, or UNSET
    if isinstance(info, mi.StructType):
        known = field.default is not msgspec.NODEFAULT or field.default_factory in _EMPTY
        return {"absent": True} if info.cls.__struct_config__.omit_defaults and known else {}
    by_init = {f.name: f.init for f in dataclasses.fields(info.cls)} if dataclasses.is_dataclass(info.cls) else {}
    return {} if by_init.get(field.name, True) else {"absent": True}


def is_mutable(info: mi.Type, inside: tuple[type, ...] = ()) -> bool:
    """May a value of this type be changed in place, so that it must be encoded again to be compared?"""
    if isinstance(info, mi.Metadata):
        return is_mutable(info.type, inside)
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


def schema_text(schema: Any) -> str:
    """A schema on one line, for people."""
    if isinstance(schema, str):
        return schema
    if not isinstance(schema, dict):
        return repr(schema)
    if "record" in schema:
        fields = ", ".join(f"{f['name']}: {schema_text(f['type'])}" for f in schema["fields"])
        return f"{schema['record'].rpartition('.')[2]}({fields})"
    kind, inner = next(iter(schema.items()))
    if kind == "union":
        return " | ".join(schema_text(item) for item in inner)
    if kind == "constrained":
        limits = ", ".join(f"{name} {limit}" for name, limit in schema["by"].items())
        return f"{schema_text(inner)} ({limits})"
    if kind in ("recursive", "custom", "enum"):
        return str(inner).rpartition(".")[2]
    if isinstance(inner, list) and kind != "literal":
        return f"{kind}[{', '.join(schema_text(item) for item in inner)}]"
    return f"{kind}[{inner if kind == 'literal' else schema_text(inner)}]"
