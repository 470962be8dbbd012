"""Types of the user's that MessagePack does not know, and numpy's scalars.

Law: a hook is called only for what msgspec cannot encode or decode by itself, so types known to it pay nothing. What a custom
`encode` returns is itself encoded by msgspec; `decode` is handed the same thing back (with tuples as lists).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import msgspec.inspect

from penstock.errors import StateError


class CustomCodec(NamedTuple):
    """How values of one class of the user's become plain values, and back."""

    tp: type
    encode: Callable[[Any], object]
    decode: Callable[[Any], object]
    name: str
    mutable: bool


_by_type: dict[type, CustomCodec] = {}
_on_change: list[Callable[[], None]] = []


def register_codec(
    tp: type, *, encode: Callable[[Any], object], decode: Callable[[Any], object], name: str, mutable: bool = True
) -> None:
    """Teach state about a class: `encode` gives bytes or any plain value, `decode` takes it back.

    Works alone and inside containers, dataclasses and structs. `name` is what snapshots remember, so keep it when the class
    moves. `mutable=False` promises that values are never changed in place.
    """
    if not isinstance(msgspec.inspect.type_info(tp), msgspec.inspect.CustomType):
        raise StateError(
            f"{_qualified(tp)} cannot have a registered codec",
            detail="MessagePack encodes this type by itself, so the codec would never be called inside a container",
            hint="declare the state with this type as it is, or wrap the value in a class of your own",
        )
    for other in list(_by_type.values()):
        if other.name == name and other.tp is not tp:
            if _qualified(other.tp) != _qualified(tp):
                raise StateError(
                    f"two codecs are named {name!r}",
                    detail=f"one for {_qualified(other.tp)}, one for {_qualified(tp)}",
                    hint="names identify codecs in snapshots; give each its own",
                )
            del _by_type[other.tp]  # the same class, defined again (a reloaded module)
    _by_type[tp] = CustomCodec(tp, encode, decode, name, mutable)
    for forget in _on_change:
        forget()


def on_registration(forget: Callable[[], None]) -> None:
    """Have `forget` called whenever what is registered changes."""
    _on_change.append(forget)


def custom_codec(tp: type) -> CustomCodec | None:
    """The codec registered for a class or, failing that, for the nearest of its bases."""
    return next((_by_type[c] for c in getattr(tp, "__mro__", ()) if c in _by_type), None)


def encode_hook(value: Any) -> object:
    """Called by msgspec's encoder for a value it does not know."""
    found = custom_codec(type(value))
    if found is not None:
        return found.encode(value)
    if type(value).__module__ == "numpy":
        numpy = sys.modules["numpy"]
        builtins = {numpy.bool_: bool, numpy.integer: int, numpy.floating: float, numpy.str_: str, numpy.bytes_: bytes}
        for scalar, builtin in builtins.items():
            if isinstance(value, scalar):
                return builtin(value)
        raise StateError(
            f"a {_qualified(type(value))} cannot be kept in state",
            hint="numpy's numbers, booleans and strings can; make built-ins of others (.tolist(), .tobytes()), or register_codec",
        )
    raise StateError(
        f"a value of type {_qualified(type(value))} cannot be encoded",
        detail=f"the value: {value!r:.200}",
        hint="use built-ins, a dataclass, a NamedTuple or a msgspec.Struct, or teach it with register_codec(...)",
    )


def decode_hook(tp: type, plain: Any) -> object:
    """Called by msgspec's decoder for a type it does not know."""
    if tp is object:
        return plain
    found = custom_codec(tp)
    if found is None:
        raise StateError(f"no codec is registered for {_qualified(tp)}", hint="call register_codec(...) beside the class")
    return found.decode(plain)


def _qualified(tp: type) -> str:
    return f"{tp.__module__}.{tp.__qualname__}"
