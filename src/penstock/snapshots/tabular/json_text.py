"""MessagePack as JSON text, and back.

What JSON cannot say is an object with one name that begins with a dollar sign:

    {"$bytes": base64}   {"$float": "nan"}   {"$instant": ISO 8601}   {"$map": [[key, value], ...]}   {"$ext": [code, base64]}

and what values of undeclared types carry (see `penstock.state.encoding.untyped`):

    {"$tuple": [...]}   {"$set": [...]}   {"$frozenset": [...]}   {"$dict": [[key, value], ...]}
    {"$record": "module:Class", "fields": {...}}   {"$enum": "module:Class", "name": ...}   {"$decimal": "1.50"} and the like

Law: `from_text(to_text(data)) == data` for all that Penstock writes. No class of the user's is looked for.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import datetime
from math import isfinite, isnan, nan
from struct import Struct
from typing import Any

import msgspec

from penstock.errors import StateError

_Ext = msgspec.msgpack.Ext
_pack = msgspec.msgpack.Encoder().encode
_text = msgspec.json.Encoder().encode
_parse = msgspec.json.Decoder().decode
_unpack: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode  # Ext stays Ext

_DOUBLE = Struct(">d")
_NAN = _DOUBLE.pack(nan)
_TUPLE, _SET, _FROZENSET, _DICT, _RECORD, _ENUM, _SCALAR = range(1, 8)
_SCALARS = ("datetime", "date", "time", "timedelta", "decimal", "uuid")
_PLAIN = frozenset((str, int, bool, type(None)))


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
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if isfinite(value) else {"$float": _spelled(value)}
    if kind is list or kind is tuple:
        return [tagged(item) for item in value]
    if kind is dict:
        if all(type(key) is str and key[:1] != "$" for key in value):
            return {key: tagged(item) for key, item in value.items()}
        return {"$map": [[tagged(key), tagged(item)] for key, item in value.items()]}
    if kind is bytes:
        return {"$bytes": b64encode(value).decode()}
    if kind is datetime:
        return {"$instant": value.isoformat()}
    assert kind is _Ext
    return _tagged_extension(value.code, bytes(value.data))


def _tagged_extension(code: int, data: bytes) -> Any:
    if code not in range(_TUPLE, _SCALAR + 1):
        return {"$ext": [code, b64encode(data).decode()]}
    inner = _unpack(data)
    if code == _TUPLE:
        return {"$tuple": tagged(inner)}
    if code in (_SET, _FROZENSET):
        return {"$set" if code == _SET else "$frozenset": [tagged(_unpack(item)) for item in inner]}
    if code == _DICT:
        return {"$dict": [[tagged(key), tagged(item)] for key, item in inner]}
    if code == _RECORD:
        return {"$record": inner[0], "fields": tagged(inner[1])}
    if code == _ENUM:
        return {"$enum": inner[0], "name": inner[1]}
    return {f"${inner[0]}": inner[1]}


def untagged(value: Any) -> Any:
    """The inverse of `tagged`."""
    kind = type(value)
    if kind is list:
        return [untagged(item) for item in value]
    if kind is not dict:
        return value
    name = next(iter(value), "")
    if name[:1] != "$":
        return {key: untagged(item) for key, item in value.items()}
    return _untagged_object(name, value)


def _untagged_object(name: str, value: dict[str, Any]) -> Any:
    inner = value[name]
    match name:
        case "$float":
            return _DOUBLE.unpack(bytes.fromhex(inner[4:]))[0] if inner.startswith("nan:") else float(inner)
        case "$bytes":
            return b64decode(inner, validate=True)
        case "$instant":
            return datetime.fromisoformat(inner)
        case "$map":
            return {_hashable(untagged(key)): untagged(item) for key, item in inner}
        case "$ext":
            return _Ext(inner[0], b64decode(inner[1], validate=True))
        case "$tuple":
            return _Ext(_TUPLE, _pack(untagged(inner)))
        case "$set" | "$frozenset":
            return _Ext(_SET if name == "$set" else _FROZENSET, _pack(sorted(_pack(untagged(item)) for item in inner)))
        case "$dict":
            return _Ext(_DICT, _pack([[untagged(key), untagged(item)] for key, item in inner]))
        case "$record":
            return _Ext(_RECORD, _pack([inner, untagged(value["fields"])]))
        case "$enum":
            return _Ext(_ENUM, _pack([inner, value["name"]]))
    if name[1:] not in _SCALARS:
        raise ValueError(f"{name} is not known")
    return _Ext(_SCALAR, _pack([name[1:], inner]))


def _spelled(value: float) -> str:
    """nan, inf, -inf; a NaN of other bits than the usual ones has them written behind it."""
    bits = _DOUBLE.pack(value)
    return f"nan:{bits.hex()}" if isnan(value) and bits != _NAN else repr(value)


def _hashable(key: Any) -> Any:
    return tuple(_hashable(item) for item in key) if type(key) is list else key
