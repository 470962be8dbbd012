"""Self-describing encoding for values whose type was not declared.

MessagePack alone forgets the difference between a tuple and a list, and the class of a dataclass. Here what it forgets is written
as an extension, so that a value comes back as it was. Classes are found by name among the modules that are loaded, and only
dataclasses, named tuples, msgspec Structs and enums are ever built: nothing that a file says is imported or executed.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from penstock.errors import StateError
from penstock.state.encoding.misfits import same

TUPLE, SET, FROZENSET, DICT, RECORD, ENUM, SCALAR = range(1, 8)
"""Codes of MessagePack's extensions."""

_PLAIN = {int, float, str, bytes, bool, type(None)}
SCALARS: dict[str, tuple[type, Any]] = {
    "datetime": (datetime, datetime.fromisoformat),
    "date": (date, date.fromisoformat),
    "time": (time, time.fromisoformat),
    "timedelta": (timedelta, lambda text: timedelta(microseconds=int(text))),
    "decimal": (Decimal, Decimal),
    "uuid": (UUID, UUID),
}
SCALAR_NAMES = {tp: name for name, (tp, _) in SCALARS.items()}
_pack = msgspec.msgpack.Encoder().encode
_Ext = msgspec.msgpack.Ext


def encode_untyped(value: Any) -> bytes:
    return _pack(_wrap(value))


def _wrap(value: Any) -> Any:
    tp = type(value)
    if tp in _PLAIN:
        return value
    if tp is tuple:
        return _Ext(TUPLE, _pack(value if _PLAIN.issuperset(map(type, value)) else [_wrap(v) for v in value]))
    if tp is list:
        return value if _PLAIN.issuperset(map(type, value)) else [_wrap(v) for v in value]
    if tp is dict:
        if all(type(k) is str for k in value):
            return {k: _wrap(v) for k, v in value.items()}
        return _Ext(DICT, _pack([[_wrap(k), _wrap(v)] for k, v in value.items()]))
    if tp is set or tp is frozenset:
        return _Ext(SET if tp is set else FROZENSET, _pack(sorted(encode_untyped(v) for v in value)))
    if isinstance(value, enum.Enum) and value.name in tp.__members__:
        return _Ext(ENUM, _pack([_name(tp), value.name]))
    if tp in SCALAR_NAMES:
        return _Ext(SCALAR, _pack([SCALAR_NAMES[tp], scalar_text(value)]))
    fields = fields_of(value)
    if fields is None:
        if (inner := unboxed(value)) is not value and same(value, inner):
            return _wrap(inner)
        raise StateError(
            f"a value of type {tp.__module__}.{tp.__qualname__} cannot be kept in state",
            detail=f"value: {value!r:.200}",
            hint="use built-in types, a dataclass, a NamedTuple or a msgspec Struct, or register a codec for the type",
        )
    if not _made_of_fields(tp) and not same(value, made_of(tp, fields)):
        raise StateError(
            f"a {tp.__module__}.{tp.__qualname__} made anew from its fields is not the same, so it cannot be kept in state",
            detail=f"value: {value!r:.200}",
            hint="give the class an __init__ and a __post_init__ that leave the fields as they are given, or register a codec",
        )
    return _Ext(RECORD, _pack([_name(tp), {name: _wrap(field) for name, field in fields.items()}]))


def scalar_text(value: Any) -> str:
    """A value of one of `SCALARS`, as text."""
    if type(value) is timedelta:
        return str(value // timedelta(microseconds=1))
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def fields_of(value: Any) -> dict[str, Any] | None:
    """The fields of a dataclass, Struct or named tuple."""
    tp = type(value)
    if dataclasses.is_dataclass(tp):
        names: Any = [field.name for field in dataclasses.fields(tp)]
    else:
        names = getattr(tp, "__struct_fields__", None) or getattr(tp, "_fields", None)
    return None if names is None else {name: getattr(value, name) for name in names}


def unboxed(value: Any) -> Any:
    """Of a scalar of numpy's what it holds."""
    return value.item() if hasattr(value, "item") and hasattr(value, "dtype") and not getattr(value, "shape", ()) else value


_made_anew: dict[type, bool] = {}


def _made_of_fields(tp: Any) -> bool:
    """Does making an instance from its fields give the same one, whatever they are?"""
    if tp not in _made_anew:
        plain = not hasattr(tp, "__post_init__")
        parameters = getattr(tp, "__dataclass_params__", None)
        if plain and parameters is not None:
            plain = parameters.init and {f.name for f in dataclasses.fields(tp)} == tp.__dataclass_fields__.keys()
        _made_anew[tp] = plain
    return _made_anew[tp]


def class_name(tp: type) -> str:
    """What a class is called in stored values."""
    return f"{tp.__module__}:{tp.__qualname__}"


_names: dict[type, str] = {}


def _name(tp: type) -> str:
    """What a class is found by again. One that could not be found is refused now, not when its values are read."""
    if tp in _names:
        return _names[tp]
    name = class_name(tp)
    if _find(name) is not tp:
        raise StateError(
            f"the class {name} cannot be found by its name, so its values cannot be kept in state",
            hint="define it at the top of a module, or declare the state with a type",
        )
    _names[tp] = name
    return name


def decode_untyped(data: bytes) -> Any:
    return _decoder.decode(data)


def _unwrap(code: int, data: memoryview) -> Any:
    inner = _decoder.decode(data)
    if code == TUPLE:
        return tuple(inner)
    if code == SET:
        return {_decoder.decode(v) for v in inner}
    if code == FROZENSET:
        return frozenset(_decoder.decode(v) for v in inner)
    if code == DICT:
        return {k: v for k, v in inner}  # noqa: C416 - pairs are lists
    if code == SCALAR:
        return SCALARS[inner[0]][1](inner[1])
    cls = _find(inner[0])
    if code == ENUM:
        return cls[inner[1]]  # type: ignore[index]
    return made_of(cls, inner[1])


def made_of(cls: type, fields: dict[str, Any]) -> Any:
    """An instance of a class, made from its fields."""
    if dataclasses.is_dataclass(cls):
        late = {f.name for f in dataclasses.fields(cls) if not f.init}
        record = cls(**{k: v for k, v in fields.items() if k not in late})
        for name in late & fields.keys():
            object.__setattr__(record, name, fields[name])
        return record
    return cls(**fields)


def loaded_class(module: str, qualname: str) -> type | None:
    """A class of a module that is loaded. Stored names neither import a module nor run a `__getattr__` that may."""
    inside = getattr(sys.modules.get(module), "__dict__", {})
    found: Any = None
    for part in qualname.split("."):
        found = inside.get(part)
        if not isinstance(found, type):
            return None
        inside = vars(found)
    return found  # type: ignore[no-any-return]


def is_record(cls: type) -> bool:
    """Is it made of fields, and of nothing else: a dataclass, a Struct, a named tuple?"""
    named = issubclass(cls, tuple) and hasattr(cls, "_fields")
    return dataclasses.is_dataclass(cls) or hasattr(cls, "__struct_fields__") or named


def _find(name: str) -> type:
    module, _, qualname = name.partition(":")
    found = loaded_class(module, qualname)
    if found is not None and (is_record(found) or issubclass(found, enum.Enum)):
        return found
    raise StateError(
        f"the class {name} of a value in state is not there any more",
        hint="define it again under the same module and name, or declare the state with a type and migrate it",
    )


_decoder = msgspec.msgpack.Decoder(ext_hook=_unwrap)
