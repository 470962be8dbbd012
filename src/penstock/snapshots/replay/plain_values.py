"""Python values as JSON from which they come back as they were.

What JSON has is written as it is. Everything else is an object with one key that begins with `$`: `{"$tuple": [1, 2]}`,
`{"$record": "shop:Order", "fields": {…}}`. No pickle: classes are found by name among the modules that are loaded, and only
dataclasses, named tuples, msgspec Structs, enums and registered types are ever built.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from penstock.errors import StateError
from penstock.state.encoding.custom import decode_hook, encode_hook
from penstock.state.encoding.untyped import is_record

_SCALARS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "timedelta": (timedelta, lambda v: v // timedelta(microseconds=1), lambda n: timedelta(microseconds=n)),
    "decimal": (Decimal, str, Decimal),
    "uuid": (UUID, str, UUID),
    "bytes": (bytes, lambda v: base64.b64encode(v).decode(), base64.b64decode),
    "bytearray": (bytearray, lambda v: base64.b64encode(v).decode(), lambda t: bytearray(base64.b64decode(t))),
    "complex": (complex, lambda v: [v.real, v.imag], lambda p: complex(*p)),
}
_NAMES = {tp: name for name, (tp, _, _) in _SCALARS.items()}
_COLLECTIONS: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_COLLECTION_NAMES = {tp: name for name, tp in _COLLECTIONS.items()}
_SAFE_INTEGER = 2**53


def to_plain(value: Any, *, or_repr: bool = False) -> Any:
    """A value as JSON can hold it. `or_repr`: what cannot be kept is shown as text, instead of refused."""
    tp = type(value)
    if value is None or tp in (str, bool):
        return value
    if tp is int:
        return value if -_SAFE_INTEGER <= value <= _SAFE_INTEGER else {"$int": str(value)}
    if tp is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if tp is list:
        return [to_plain(item, or_repr=or_repr) for item in value]
    if tp is dict:
        if all(type(key) is str and not key.startswith("$") for key in value):
            return {key: to_plain(item, or_repr=or_repr) for key, item in value.items()}
        return {"$dict": [[to_plain(k, or_repr=or_repr), to_plain(v, or_repr=or_repr)] for k, v in value.items()]}
    if tp in _COLLECTION_NAMES:
        items = [to_plain(item, or_repr=or_repr) for item in value]
        return {f"${_COLLECTION_NAMES[tp]}": items if tp is tuple else sorted(items, key=repr)}
    if tp in _NAMES:
        return {f"${_NAMES[tp]}": _SCALARS[_NAMES[tp]][1](value)}
    if isinstance(value, enum.Enum):
        return {"$enum": _name(tp), "name": value.name}
    fields = _fields(value)
    if fields is not None:
        plain = {name: to_plain(getattr(value, name), or_repr=or_repr) for name in fields}
        return {"$record": _name(tp), "fields": plain}
    if hasattr(value, "item") and hasattr(value, "dtype") and not getattr(value, "shape", ()):
        return to_plain(value.item(), or_repr=or_repr)
    try:
        return {"$custom": _name(tp), "value": to_plain(encode_hook(value), or_repr=or_repr)}
    except Exception as error:
        if or_repr:
            return {"$repr": repr(value)}
        raise StateError(
            f"a value of type {tp.__module__}.{tp.__qualname__} cannot be recorded",
            detail=f"value: {value!r:.200}",
            hint="use built-in types, a dataclass, a NamedTuple or a msgspec Struct, or register a codec for the type",
        ) from error


def from_plain(data: Any, find: Callable[[str], type]) -> Any:
    """The inverse of `to_plain`; `find` gives the class of a name such as `shop:Order`."""
    if isinstance(data, list):
        return [from_plain(item, find) for item in data]
    if not isinstance(data, dict):
        return data
    tag = next(iter(data), "")
    if not tag.startswith("$"):
        return {key: from_plain(item, find) for key, item in data.items()}
    inner = data[tag]
    match tag[1:]:
        case "int":
            return int(inner)
        case "float":
            return float(inner)
        case "dict":
            return {from_plain(key, find): from_plain(value, find) for key, value in inner}
        case "enum":
            return _kind(find(inner), lambda cls: issubclass(cls, enum.Enum))[data["name"]]  # type: ignore[index]
        case "record":
            return _built(_kind(find(inner), is_record), {name: from_plain(item, find) for name, item in data["fields"].items()})
        case "custom":
            return decode_hook(find(inner), from_plain(data["value"], find))
        case name if name in _COLLECTIONS:
            return _COLLECTIONS[name](from_plain(item, find) for item in inner)
        case name if name in _SCALARS:
            return _SCALARS[name][2](inner)
    raise StateError(f"a recorded value has an unknown form: {tag!r}", hint="was it recorded by a newer Penstock?")


def _fields(value: Any) -> tuple[str, ...] | None:
    tp = type(value)
    if dataclasses.is_dataclass(tp):
        return tuple(field.name for field in dataclasses.fields(tp))
    return getattr(tp, "__struct_fields__", None) or getattr(tp, "_fields", None)


def _kind(cls: type, right: Callable[[type], bool]) -> type:
    """The class, if instances may be built as the data says: others may do anything when they are called."""
    if not right(cls):
        raise StateError(
            f"{_name(cls)} is not a class that recorded values are made of",
            hint="dataclasses, named tuples, msgspec Structs, enums and registered types are; who wrote this file?",
        )
    return cls


def _built(cls: type, values: dict[str, Any]) -> Any:
    if not dataclasses.is_dataclass(cls):
        return cls(**values)
    late = {field.name for field in dataclasses.fields(cls) if not field.init}
    record = cls(**{name: value for name, value in values.items() if name not in late})
    for name in late & values.keys():
        object.__setattr__(record, name, values[name])
    return record


def _name(tp: type) -> str:
    return f"{tp.__module__}:{tp.__qualname__}"
