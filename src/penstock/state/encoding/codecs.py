"""Typed values as bytes: MessagePack by msgspec.

Laws:
- `decode(encode(v)) == v` for every value of the declared type, in any process.
- `encode` and `decode` are msgspec's own bound methods: no Python frame on the hot path. They raise what msgspec raises
  (`CODEC_ERRORS`); a caller has its own `try` around them, which costs nothing, and raises `codec.failure(error)`. `write` and
  `read` do that for others.
- Encoding does not check types; decoding does. So what is written is checked: `check` passes most of what fits, at once, and
  `settle` has the last word. No pickle, unless a state asks for it by `codec=PICKLE`: then it `needs_trust`.
- Without a type (None, object, Any) plain values come back: tuples and sets as lists, naive datetimes, dates, decimals, UUIDs and
  enums as MessagePack writes them, dataclasses as dicts. Declare a type to get it back.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import msgspec
import msgspec.inspect

from penstock.errors import StateError
from penstock.state.encoding.checks import Check, compile_check, outer_types
from penstock.state.encoding.custom import decode_hook, encode_hook, on_registration, register_codec
from penstock.state.encoding.keys import KeyCodec, decode_key, encode_key, encode_keys, key_codec
from penstock.state.encoding.misfits import Misfit, misfit, same, wrong_type
from penstock.state.encoding.schemas import describe, is_mutable

__all__ = [
    "CODEC_ERRORS",
    "PICKLE",
    "Codec",
    "KeyCodec",
    "codec_for",
    "decode_key",
    "encode_key",
    "encode_keys",
    "key_codec",
    "register_codec",
]

CODEC_ERRORS = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError, pickle.PickleError)
"""What `Codec.encode` and `Codec.decode` raise, besides StateError."""

_encoder = msgspec.msgpack.Encoder(enc_hook=encode_hook)


class Codec:
    """How values of one type are kept. `mutable`: may be changed in place; `needs_trust`: decoding can run code.

    `check`: see `penstock.state.encoding.checks`; None if encoding refuses what would not be read back. `outer`: the classes that
    values are instances of, the usual one first; None for any.
    """

    __slots__ = ("check", "decode", "encode", "mutable", "needs_trust", "outer", "schema", "tp")

    def __init__(
        self,
        tp: Any,
        *,
        encode: Callable[[Any], bytes],
        decode: Callable[[bytes], Any],
        mutable: bool,
        schema: object,
        needs_trust: bool = False,
        check: Check | None = None,
        outer: tuple[type, ...] | None = None,
    ) -> None:
        self.tp = tp
        self.encode = encode
        self.decode = decode
        self.mutable = mutable
        self.schema = schema
        self.needs_trust = needs_trust
        self.check = check
        self.outer = outer

    def write(self, value: Any) -> bytes:
        """`encode`, with a StateError for what cannot be, or would not be read back as it is."""
        try:
            data = self.encode(value)
        except CODEC_ERRORS as error:
            raise self.failure(error, value) from error
        if not self.passes(value):
            _, found = self.settle(value, data)
            if found is not None:
                raise wrong_type(found, value)
        return data

    def passes(self, value: Any) -> bool:
        """The check of a value that has been encoded."""
        try:
            return self.check is None or self.check(value)
        except AttributeError:
            return False  # a record without one of its fields

    def settle(self, value: Any, data: bytes) -> tuple[Any, Misfit | None]:
        """What is read back of a value, and what is wrong with it, if it is not the value that was written."""
        try:
            back = self.decode(data)
        except (*CODEC_ERRORS, ArithmeticError) as error:
            return None, self.misfit(value, error=error)
        return back, None if same(value, back) else self.misfit(value, back)

    def misfit(self, value: Any, back: Any = None, error: Exception | None = None) -> Misfit:
        """What is wrong with a value that is read back as another, or gives an error when it is encoded or read back."""
        return misfit(msgspec.inspect.type_info(self.tp), value, _fits, back, error)

    def read(self, data: bytes) -> Any:
        """`decode`, with a StateError for bytes of another type."""
        try:
            return self.decode(data)
        except CODEC_ERRORS as error:
            raise self.failure(error) from error

    def failure(self, error: Exception, value: object = ..., where: str = "") -> StateError:
        """The StateError for what `encode` (then give the value) or `decode` raised; `where` names the state."""
        at = f" in {where}" if where else ""
        if isinstance(error, StateError):
            return error
        if value is not ...:
            return StateError(
                f"a value cannot be encoded as {_spell(self.tp)}{at}",
                detail=f"{type(error).__name__}: {error}\nthe value: {value!r:.200}",
                hint="integers must fit 64 bits, and values must be of the declared type",
            )
        return StateError(
            f"stored bytes are not a {_spell(self.tp)}{at}",
            detail=f"{type(error).__name__}: {error}",
            hint="was a value of another type stored, or the declared type changed? See `migrate=`",
        )

    def __reduce__(self) -> str | tuple[Callable[[Any], Codec], tuple[Any]]:
        return "PICKLE" if self is PICKLE else (codec_for, (self.tp,))

    def __repr__(self) -> str:
        return "PICKLE" if self is PICKLE else f"codec_for({_spell(self.tp)})"


def codec_for(tp: Any = None) -> Codec:
    """The codec of a type, made once.

    >>> codec_for(tuple[int, str]).schema
    {'tuple': ['int', 'str']}
    """
    try:
        return _codec_for(Any if tp is None or tp is object else tp)
    except StateError:
        raise
    except (TypeError, NameError, ValueError) as error:
        raise StateError(
            f"{_spell(tp)} cannot be the type of a state",
            detail=str(error),
            hint="use built-ins, containers of them, dataclasses or structs; a union of records needs msgspec.Struct with tag=",
        ) from None


@lru_cache(maxsize=1024)
def _codec_for(tp: Any) -> Codec:
    info = msgspec.inspect.type_info(tp)
    schema = describe(info)
    decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(tp, dec_hook=decode_hook)
    return Codec(
        tp,
        encode=_encoder.encode,
        decode=decoder.decode,
        mutable=is_mutable(info),
        schema=schema,
        check=compile_check(info),
        outer=outer_types(info),
    )


def _fits(tp: Any, value: Any) -> bool:
    codec = codec_for(tp)
    try:
        data = codec.encode(value)
        return codec.passes(value) or same(value, codec.decode(data))
    except (StateError, *CODEC_ERRORS, ArithmeticError):
        return False


def _spell(tp: Any) -> str:
    if tp is None or tp is Any:
        return "plain value"
    return tp.__qualname__ if isinstance(tp, type) and not hasattr(tp, "__args__") else repr(tp)


on_registration(_codec_for.cache_clear)

PICKLE = Codec(
    object,
    encode=partial(pickle.dumps, protocol=5),
    decode=pickle.loads,
    mutable=True,
    schema={"pickle": True},
    needs_trust=True,
)
"""Any Python object, by pickle: bound to this code and this Python, and refused from a foreign place unless it is trusted."""
