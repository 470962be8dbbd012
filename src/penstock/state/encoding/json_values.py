"""Values as JSON, from which they come back as they were: of stored bytes (`to_text`), and of Python's own (`to_plain`).

What JSON cannot say is an object whose first name begins with a dollar sign:

    {"$bytes": base64}   {"$float": "nan"}   {"$tuple": [...]}   {"$set": [...]}   {"$frozenset": [...]}
    {"$dict": [[key, value], ...]}   {"$record": "module:Class", "fields": {...}}   {"$enum": "module:Class", "name": ...}
    {"$decimal": "1.50"} and the like

of bytes also {"$instant": ISO 8601}, {"$map": [[key, value], ...]}, {"$ext": [code, base64]}; of Python's values also
{"$int": "..."} (JSON's integers are exact up to 2**53), {"$bytearray": base64}, {"$complex": [1.0, 2.0]},
{"$custom": "module:Class", "value": ...}.

Laws:
- `from_text(to_text(data)) == data` for all that Penstock writes. No class of the user's is looked for.
- `from_plain` builds only dataclasses, named tuples, msgspec Structs, enums and registered types, of classes that the caller
  finds by name. Nothing is unpickled.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum
from math import isfinite, isnan, nan
from struct import Struct
from typing import Any

import msgspec

from penstock.errors import StateError
from penstock.state.encoding.custom import decode_hook, encode_hook
from penstock.state.encoding.untyped import (
    DICT,
    ENUM,
    FROZENSET,
    RECORD,
    SCALAR,
    SCALAR_NAMES,
    SCALARS,
    SET,
    TUPLE,
    class_name,
    fields_of,
    is_record,
    made_of,
    scalar_text,
    unboxed,
)

_Ext = msgspec.msgpack.Ext
_pack = msgspec.msgpack.Encoder().encode
_text = msgspec.json.Encoder().encode
_parse = msgspec.json.Decoder().decode
_unpack: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode  # Ext stays Ext

_DOUBLE = Struct(">d")
_NAN = _DOUBLE.pack(nan)
_PLAIN = frozenset((str, int, bool, type(None)))
_SAFE_INTEGER = 2**53
_COLLECTIONS: dict[str, type] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_COLLECTION_NAMES = {tp: name for name, tp in _COLLECTIONS.items()}
_BYTES: dict[str, type] = {"bytes": bytes, "bytearray": bytearray}


def _in_json(value: Any, each: Callable[[Any], Any], pairs: str) -> Any:
    """A float, list or dict; `each` writes what is in it, under `pairs` are the entries of a dict that is no object of JSON."""
    if type(value) is float:
        return value if isfinite(value) else {"$float": _spelled(value)}
    if type(value) is dict:
        if all(type(key) is str and key[:1] != "$" for key in value):
            return {key: each(item) for key, item in value.items()}
        return {pairs: [[each(key), each(item)] for key, item in value.items()]}
    return [each(item) for item in value]


def _from_json(data: Any, each: Callable[[Any], Any], tagged_object: Callable[[str, dict[str, Any]], Any]) -> Any:
    kind = type(data)
    if kind is list:
        return [each(item) for item in data]
    if kind is not dict:
        return data
    tag = next(iter(data), "")
    return tagged_object(tag[1:], data) if tag[:1] == "$" else {key: each(item) for key, item in data.items()}


def _spelled(value: float) -> str:
    """nan, inf, -inf; a NaN of other bits than the usual ones has them written behind it."""
    bits = _DOUBLE.pack(value)
    return f"nan:{bits.hex()}" if isnan(value) and bits != _NAN else repr(value)


def _float(text: str) -> float:
    return _DOUBLE.unpack(bytes.fromhex(text[4:]))[0] if text.startswith("nan:") else float(text)


# --- of bytes ------------------------------------------------------------------------------------------------------------------


def to_text(data: bytes) -> str:
    """One MessagePack value as JSON text.

    >>> to_text(b"\\x92\\x01\\xc4\\x01a")
    '[1,{"$bytes":"YQ=="}]'
    """
    return _text(tagged(_unpack(data))).decode()


def from_text(text: str) -> bytes:
    """The inverse of `to_text`."""
    try:
        return _pack(untagged(_parse(text)))
    except (msgspec.MsgspecError, TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise StateError(
            f"{text!r:.200} is not a value as JSON text",
            detail=f"{type(error).__name__}: {error}",
            hint='a string needs its quotes ("abc"); bytes are {"$bytes": base64}',
        ) from None


def tagged(value: Any) -> Any:
    """Decoded MessagePack, with what JSON cannot say in objects of its own."""
    kind = type(value)
    if kind in _PLAIN or (kind is float and isfinite(value)):
        return value
    if kind is bytes:
        return {"$bytes": b64encode(value).decode()}
    if kind is datetime:
        return {"$instant": value.isoformat()}
    if kind is not _Ext:
        return _in_json(value, tagged, "$map")
    code, data = value.code, bytes(value.data)
    if code not in range(TUPLE, SCALAR + 1):
        return {"$ext": [code, b64encode(data).decode()]}
    inner = _unpack(data)
    if code == TUPLE:
        return {"$tuple": tagged(inner)}
    if code in (SET, FROZENSET):
        return {"$set" if code == SET else "$frozenset": [tagged(_unpack(item)) for item in inner]}
    if code == DICT:
        return {"$dict": [[tagged(key), tagged(item)] for key, item in inner]}
    if code == RECORD:
        return {"$record": inner[0], "fields": tagged(inner[1])}
    return {"$enum": inner[0], "name": inner[1]} if code == ENUM else {f"${inner[0]}": inner[1]}


def untagged(data: Any) -> Any:
    """The inverse of `tagged`."""
    return _from_json(data, untagged, _untagged_object)


def _untagged_object(tag: str, data: dict[str, Any]) -> Any:
    inner = data[f"${tag}"]
    match tag:
        case "float":
            return _float(inner)
        case "bytes":
            return b64decode(inner, validate=True)
        case "instant":
            return datetime.fromisoformat(inner)
        case "map":
            return {_hashable(untagged(key)): untagged(item) for key, item in inner}
        case "ext":
            return _Ext(inner[0], b64decode(inner[1], validate=True))
        case "tuple":
            return _Ext(TUPLE, _pack(untagged(inner)))
        case "set" | "frozenset":
            return _Ext(SET if tag == "set" else FROZENSET, _pack(sorted(_pack(untagged(item)) for item in inner)))
        case "dict":
            return _Ext(DICT, _pack([[untagged(key), untagged(item)] for key, item in inner]))
        case "record":
            return _Ext(RECORD, _pack([inner, untagged(data["fields"])]))
        case "enum":
            return _Ext(ENUM, _pack([inner, data["name"]]))
    if tag not in SCALARS:
        raise ValueError(f"${tag} is not known")
    return _Ext(SCALAR, _pack([tag, inner]))


def _hashable(key: Any) -> Any:
    return tuple(_hashable(item) for item in key) if type(key) is list else key


# --- of Python's values --------------------------------------------------------------------------------------------------------


def to_plain(value: Any, *, or_repr: bool = False) -> Any:
    """A value as JSON can hold it. `or_repr`: what cannot be kept is shown as text, instead of refused."""

    def each(item: Any) -> Any:
        return to_plain(item, or_repr=or_repr)

    tp = type(value)
    if tp is int and not -_SAFE_INTEGER <= value <= _SAFE_INTEGER:
        return {"$int": str(value)}
    if tp in _PLAIN:
        return value
    if tp in (float, list, dict):
        return _in_json(value, each, "$dict")
    if tp in _COLLECTION_NAMES:
        items = [each(item) for item in value]
        return {f"${_COLLECTION_NAMES[tp]}": items if tp is tuple else sorted(items, key=repr)}
    if tp in (bytes, bytearray):
        return {f"${tp.__name__}": b64encode(value).decode()}
    if tp is complex:
        return {"$complex": [value.real, value.imag]}
    if tp in SCALAR_NAMES:
        text = scalar_text(value)
        return {f"${SCALAR_NAMES[tp]}": int(text) if tp is timedelta else text}
    if isinstance(value, Enum):
        return {"$enum": class_name(tp), "name": value.name}
    if (fields := fields_of(value)) is not None:
        return {"$record": class_name(tp), "fields": {name: each(item) for name, item in fields.items()}}
    if (inner := unboxed(value)) is not value:
        return each(inner)
    try:
        return {"$custom": class_name(tp), "value": each(encode_hook(value))}
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

    def each(item: Any) -> Any:
        return from_plain(item, find)

    def of_object(tag: str, data: dict[str, Any]) -> Any:
        inner = data[f"${tag}"]
        match tag:
            case "int":
                return int(inner)
            case "float":
                return _float(inner)
            case "complex":
                return complex(*inner)
            case "dict":
                return {each(key): each(value) for key, value in inner}
            case "enum":
                return _right(find(inner), lambda cls: issubclass(cls, Enum))[data["name"]]  # type: ignore[index]
            case "record":
                return made_of(_right(find(inner), is_record), {name: each(item) for name, item in data["fields"].items()})
            case "custom":
                return decode_hook(find(inner), each(data["value"]))
        if tag in _COLLECTIONS:
            return _COLLECTIONS[tag](map(each, inner))
        if tag in _BYTES:
            return _BYTES[tag](b64decode(inner))
        if tag in SCALARS:
            return SCALARS[tag][1](inner)
        raise StateError(f"a recorded value has an unknown form: '${tag}'", hint="was it recorded by a newer Penstock?")

    return _from_json(data, each, of_object)


def _right(cls: type, right: Callable[[type], bool]) -> type:
    """The class, if instances may be built as the data says: others may do anything when they are called."""
    if not right(cls):
        raise StateError(
            f"{class_name(cls)} is not a class that recorded values are made of",
            hint="dataclasses, named tuples, msgspec Structs, enums and registered types are; who wrote this file?",
        )
    return cls
