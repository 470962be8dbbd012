"""Keys as bytes.

Law: equal keys of one type have equal bytes, whatever process or machine encodes them (-0.0 is 0.0, a NaN is a NaN, a datetime is
its instant, numpy's scalars are Python's); different keys have different bytes; and no encoding is the beginning of another. `1`,
`1.0` and `True` are three keys, unless `key_type=` says which of them is meant.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from functools import lru_cache
from itertools import chain
from math import isnan, nan
from typing import Any

import msgspec

from penstock.errors import StateError
from penstock.state.encoding.custom import decode_hook, encode_hook, on_registration
from penstock.state.encoding.schemas import describe

_encode = msgspec.msgpack.Encoder(enc_hook=encode_hook, order="deterministic").encode
_decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder().decode
_NAN = _encode(nan)
_PLAIN = frozenset((str, int, bytes, bool, type(None)))
_TUPLE = frozenset((tuple,))
_FLOAT = frozenset((float,))
_REFUSED = (TypeError, ValueError, ArithmeticError, RecursionError, msgspec.MsgspecError)


class KeyCodec:
    """`encode(key) -> bytes`, `decode(bytes) -> key`, `encode_many(keys) -> list[bytes]`."""

    __slots__ = ("decode", "encode", "encode_many", "key_type", "schema")

    def __init__(
        self,
        key_type: Any,
        schema: object,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        encode_many: Callable[[list[Any]], list[bytes]],
    ) -> None:
        self.key_type = key_type
        self.schema = schema
        self.encode = encode
        self.decode = decode
        self.encode_many = encode_many

    def __reduce__(self) -> tuple[Callable[[Any], KeyCodec], tuple[Any]]:
        return key_codec, (self.key_type,)

    def __repr__(self) -> str:
        return f"key_codec({self.key_type!r})"


def key_codec(tp: Any = None) -> KeyCodec:
    """The codec for keys of a type; without one, for None, bool, int, float, str, bytes, aware datetimes, and tuples of these."""
    return _UNTYPED if tp in (None, object, Any) else _typed(tp)


def encode_key(key: Any) -> bytes:
    """One untyped key."""
    try:
        return _encode(key if type(key) in _PLAIN else _canonical(key))
    except _REFUSED as error:
        raise _refusal(key, error) from None


def decode_key(data: bytes) -> Any:
    """The inverse of `encode_key`: arrays are tuples."""
    try:
        key = _decode(data)
    except _REFUSED as error:
        raise _unreadable(data, "a key", error) from None
    return _tuples(key) if type(key) is list else key


def encode_keys(values: list[Any]) -> list[bytes]:
    """Many untyped keys: the same bytes as `encode_key`, faster."""
    types = set(map(type, values))
    encode = _encode
    try:
        if types <= _PLAIN or (types == _TUPLE and set(map(type, chain.from_iterable(values))) <= _PLAIN):
            return [encode(value) for value in values]
        if types == _FLOAT:
            return [_NAN if isnan(value) else encode(value + 0.0) for value in values]
    except _REFUSED:
        pass  # one by one below, to name the key
    return [encode_key(value) for value in values]


def _canonical(key: Any) -> Any:
    tp = type(key)
    if tp in _PLAIN:
        return key
    if tp is tuple:
        return tuple([_canonical(item) for item in key])
    if tp is float:
        return nan if isnan(key) else key + 0.0
    if tp is datetime:
        if key.utcoffset() is None:
            raise TypeError("a datetime without a time zone is not an instant")
        return key
    if tp.__module__ == "numpy":
        return _canonical(encode_hook(key))
    raise TypeError("not a type that keys can have by themselves")


def _tuples(items: list[Any]) -> tuple[Any, ...]:
    return tuple([_tuples(item) if type(item) is list else item for item in items])


@lru_cache(maxsize=256)
def _typed(tp: Any) -> KeyCodec:
    try:
        schema = describe(msgspec.inspect.type_info(tp))
        decoder: Callable[[bytes], Any] = msgspec.msgpack.Decoder(tp, dec_hook=decode_hook).decode
    except (TypeError, NameError) as error:
        raise StateError(f"key_type={tp!r} cannot be a key", detail=str(error)) from None
    exact = tp if tp in (str, int, bytes) else None
    rounds = _rounds(schema)

    def encode(key: Any) -> bytes:
        try:
            if type(key) is exact:
                return _encode(key)
            data = _encode(key)
            typed = decoder(data)  # a key that could not be read back would be lost
            if rounds:
                data = _encode(_plain(msgspec.to_builtins(typed, builtin_types=_KEPT, enc_hook=encode_hook)))
            elif exact is not None:
                data = _encode(typed)
            return data
        except _REFUSED as error:
            raise _refusal(key, error, tp) from None

    def decode(data: bytes) -> Any:
        try:
            return decoder(data)
        except _REFUSED as error:
            raise _unreadable(data, f"a key of type {tp!r}", error) from None

    def encode_many(keys: list[Any]) -> list[bytes]:
        if exact is not None and set(map(type, keys)) <= {exact}:
            try:
                return [_encode(key) for key in keys]
            except _REFUSED:
                pass  # one by one below, to name the key
        return [encode(key) for key in keys]

    return KeyCodec(tp, schema, encode, decode, encode_many)


_KEPT = (bytes, datetime, Decimal)
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)


def _plain(value: Any) -> Any:
    """Plain values with one spelling for each number."""
    if type(value) is float:
        return nan if isnan(value) else value + 0.0
    if type(value) is Decimal:
        return canonical_decimal(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(k) if not isinstance(k, (list, tuple)) else tuple(map(_plain, k)): _plain(v) for k, v in value.items()}
    return value


def canonical_decimal(value: Decimal) -> Decimal:
    """The one spelling that equal decimals have in keys."""
    return _EXACT.plus(_EXACT.normalize(value))


def canonical_key(data: bytes, schema: Any) -> bytes:
    """The bytes that a key of this schema is kept under, from any MessagePack of it (its decimals are canonical already)."""
    return _encode(_plain(_decode(data))) if _rounds(schema) else data


def _rounds(schema: Any) -> bool:
    """May equal values be written differently?"""
    text = repr(schema)
    return any(f"'{name}'" in text for name in ("float", "decimal", "any"))


def _refusal(key: Any, error: Exception, tp: Any = None) -> StateError:
    return StateError(
        f"{key!r:.200} of type {type(key).__qualname__} cannot be a key" + (f" of type {tp!r}" if tp is not None else ""),
        detail=str(error),
        hint="return a value of the declared key_type" if tp is not None else "use a str, an int or a tuple, or pass key_type=",
    )


def _unreadable(data: bytes, wanted: str, error: Exception) -> StateError:
    return StateError(
        f"stored bytes are not {wanted}",
        detail=f"{error}\nthe bytes: {data[:40]!r}",
        hint="was the type of the key changed since the state was written?",
    )


on_registration(_typed.cache_clear)
_UNTYPED = KeyCodec(None, "any", encode_key, decode_key, encode_keys)
