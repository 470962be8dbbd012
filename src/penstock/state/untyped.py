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

_TUPLE, _SET, _FROZENSET, _DICT, _RECORD, _ENUM, _SCALAR = range(1, 8)
_PLAIN = {int, float, str, bytes, bool, type(None)}
_PLAIN_KEYS = {str, int}
_SCALARS: dict[str, tuple[type, Any]] = {
    "datetime": (datetime, datetime.fromisoformat),
    "date": (date, date.fromisoformat),
    "time": (time, time.fromisoformat),
    "timedelta": (timedelta, lambda text: timedelta(microseconds=int(text))),
    "decimal": (Decimal, Decimal),
    "uuid": (UUID, UUID),
}
_SCALAR_NAMES = {tp: name for name, (tp, _) in _SCALARS.items()}
_pack = msgspec.msgpack.Encoder().encode
_Ext = msgspec.msgpack.Ext


def encode_untyped(value: Any) -> bytes:
    return _pack(_wrap(value))


def _wrap(value: Any) -> Any:
    tp = type(value)
    if tp in _PLAIN:
        return value
    if tp is tuple:
        return _Ext(_TUPLE, _pack(value if _PLAIN.issuperset(map(type, value)) else [_wrap(v) for v in value]))
    if tp is list:
        return value if _PLAIN.issuperset(map(type, value)) else [_wrap(v) for v in value]
    if tp is dict:
        if all(type(k) is str for k in value):
            return {k: _wrap(v) for k, v in value.items()}
        return _Ext(_DICT, _pack([[_wrap(k), _wrap(v)] for k, v in value.items()]))
    if tp is set or tp is frozenset:
        return _Ext(_SET if tp is set else _FROZENSET, _pack(sorted(encode_untyped(v) for v in value)))
    if isinstance(value, enum.Enum):
        return _Ext(_ENUM, _pack([_name(tp), value.name]))
    if tp in _SCALAR_NAMES:
        text = (
            str(value // timedelta(microseconds=1))
            if tp is timedelta
            else value.isoformat()
            if hasattr(value, "isoformat")
            else str(value)
        )
        return _Ext(_SCALAR, _pack([_SCALAR_NAMES[tp], text]))
    if dataclasses.is_dataclass(tp):
        fields = {f.name: _wrap(getattr(value, f.name)) for f in dataclasses.fields(tp)}
    elif (names := getattr(tp, "__struct_fields__", None) or getattr(tp, "_fields", None)) is not None:
        fields = {name: _wrap(getattr(value, name)) for name in names}
    elif hasattr(value, "item") and hasattr(value, "dtype") and not getattr(value, "shape", ()):
        return _wrap(value.item())
    else:
        raise StateError(
            f"a value of type {tp.__module__}.{tp.__qualname__} cannot be kept in state",
            detail=f"value: {value!r:.200}",
            hint="use built-in types, a dataclass, a NamedTuple or a msgspec Struct, or register a codec for the type",
        )
    return _Ext(_RECORD, _pack([_name(tp), fields]))


_names: dict[type, str] = {}


def _name(tp: type) -> str:
    """What a class is found by again. One that could not be found is refused now, not when its values are read."""
    if tp in _names:
        return _names[tp]
    name = f"{tp.__module__}:{tp.__qualname__}"
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
    if code == _TUPLE:
        return tuple(inner)
    if code == _SET:
        return {_decoder.decode(v) for v in inner}
    if code == _FROZENSET:
        return frozenset(_decoder.decode(v) for v in inner)
    if code == _DICT:
        return {k: v for k, v in inner}  # noqa: C416 - pairs are lists
    if code == _SCALAR:
        return _SCALARS[inner[0]][1](inner[1])
    cls = _find(inner[0])
    if code == _ENUM:
        return cls[inner[1]]  # type: ignore[index]
    if dataclasses.is_dataclass(cls):
        late = {f.name for f in dataclasses.fields(cls) if not f.init}
        record = cls(**{k: v for k, v in inner[1].items() if k not in late})
        for name in late & inner[1].keys():
            object.__setattr__(record, name, inner[1][name])
        return record
    return cls(**inner[1])


def _find(name: str) -> type:
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and (
        dataclasses.is_dataclass(found)
        or hasattr(found, "__struct_fields__")
        or hasattr(found, "_fields")
        or issubclass(found, enum.Enum)
    ):
        return found
    raise StateError(
        f"the class {name} of a value in state is not there any more",
        hint="define it again under the same module and name, or declare the state with a type and migrate it",
    )


_decoder = msgspec.msgpack.Decoder(ext_hook=_unwrap)
