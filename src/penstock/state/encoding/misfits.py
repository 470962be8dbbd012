"""Values that do not fit the declared type of a state: found, and described.

Law: a value fits if what is read back after encoding it is equal to it; NaN counts as equal to itself, and records whose classes
do not compare them count as equal if their fields are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import msgspec.inspect as mi

from penstock.errors import StateError, StateTypeError
from penstock.state.encoding.checks import CONTAINERS, SCALARS, comes_back, limits_of, outer_types, unwrapped

RoundTrip = Callable[[Any, Any], bool]
"""Does a value of a type (the first argument) fit?"""


class Misfit(NamedTuple):
    """A part of a value that is not of its declared type."""

    path: str
    """Where in the value: `.items[3].price`; empty for the value itself."""
    expected: str
    value: Any
    note: str = ""

    def hint(self) -> str:
        kind, wanted = type(self.value), self.expected
        if self.value is None and not self.path:
            return f"clear() removes the value of a key; declare {wanted} | None to keep None"
        if kind.__module__.startswith("pandas") and hasattr(self.value, "to_pydatetime"):
            return "write x.to_pydatetime()"
        if wanted == "int" and kind is int:
            return "integers of state fit 64 bits: keep larger ones as text, or as a Decimal"
        if wanted in ("int", "float", "bool", "str") and (kind in (int, float, bool) or kind.__module__ == "numpy"):
            return f"write {wanted}(x), or declare the state with the type that you mean"
        outer = wanted.partition("[")[0]
        if (
            outer != kind.__name__
            and outer in ("list", "tuple", "set", "frozenset", "dict")
            and kind in (list, tuple, set, frozenset, dict)
        ):
            return f"write {outer}(x), or declare the state with the type that you mean"
        if wanted == "Any":
            return "inside a typed state a part of no type comes back as plain MessagePack; declare its type"
        return "write a value of the declared type, or declare the state with the type that you mean"


def same(value: Any, back: Any) -> bool:
    """Is a value that was read back the one that was written?"""
    if value is back:
        return True
    try:
        if value == back and back == value:  # a numpy integer equals a Decimal, and not the other way round
            return True
        if isinstance(value, (list, tuple)):
            return type(value) is type(back) and len(value) == len(back) and all(map(same, value, back))
        if isinstance(value, dict):
            return isinstance(back, dict) and value.keys() == back.keys() and all(same(value[key], back[key]) for key in value)
        names = _fields(value)
        if names and type(value) is type(back):
            return all(same(getattr(value, name), getattr(back, name)) for name in names)
        return bool(value != value and back != back)  # NaN
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        return False


def _fields(value: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(value):
        return tuple(field.name for field in dataclasses.fields(value))
    return tuple(getattr(value, "__struct_fields__", ()))


def find_misfit(info: mi.Type, value: Any, fits: RoundTrip, path: str = "") -> Misfit | None:
    """The first part of a value that does not fit; None if it is none of its parts."""
    info = unwrapped(info)
    here = Misfit(path, spelled(info), value)
    if isinstance(info, mi.UnionType):
        return _in_union(info, here, fits)
    python = _python_type(info)
    if python is not None:
        return None if fits(python, value) else here
    if type(info) not in CONTAINERS and not isinstance(info, (mi.StructType, mi.DataclassType, mi.NamedTupleType)):
        return _in_plain(value, path)
    outer = (outer_types(info) or (object,))[0]
    if not _is(value, outer):
        return here
    if isinstance(info, mi.TupleType) and len(value) != len(info.item_types):
        return here._replace(note=f"{len(value)} items instead of {len(info.item_types)}")
    if isinstance(info, mi.TypedDictType):
        known, needed = {f.encode_name for f in info.fields}, {f.encode_name for f in info.fields if f.required}
        if value.keys() - known or needed - value.keys():
            odd = [*(f"no field {key!r}" for key in needed - value.keys()), *(f"field {key!r}" for key in value.keys() - known)]
            return here._replace(note=", ".join(sorted(odd)))
    for item, part, inner in _parts(info, value):
        found = find_misfit(inner, item, fits, path + part)
        if found is not None:
            return found
    limits = limits_of(info)
    if limits and not limits.get("min_length", 0) <= len(value) <= limits.get("max_length", len(value)):
        return here._replace(note=f"{len(value)} items")
    return None if type(value) is outer or isinstance(value, (list, dict, set, tuple, frozenset)) else here


def _is(value: Any, outer: type) -> bool:
    return isinstance(value, outer)


def _in_union(info: mi.UnionType, here: Misfit, fits: RoundTrip) -> Misfit | None:
    found = [find_misfit(member, here.value, fits, here.path) for member in info.types]
    if None in found:
        return None
    deeper = [one for one in found if one is not None and one.path != here.path]
    return deeper[0] if len(deeper) == 1 else here


def _in_plain(value: Any, path: str) -> Misfit | None:
    """Of a part without a type: the first thing in it that MessagePack gives back as another."""
    if comes_back(value):
        return None
    if type(value) is list:
        parts: Iterator[tuple[str, Any]] = ((f"[{number}]", item) for number, item in enumerate(value))
    elif type(value) is dict:
        parts = ((f"[{key!r}]", item) for key, item in value.items())
    else:
        back = msgspec.msgpack.Decoder().decode(msgspec.msgpack.Encoder(enc_hook=str).encode(value))
        return None if same(value, back) else Misfit(path, "Any", value, f"it would come back as {back!r:.80}")
    return next((found for part, item in parts if (found := _in_plain(item, path + part)) is not None), None)


def _parts(info: mi.Type, value: Any) -> Iterator[tuple[Any, str, mi.Type]]:
    """What a value consists of: the item, where it is, and its type."""
    if isinstance(info, (mi.ListType, mi.VarTupleType)):
        for number, item in enumerate(value):
            yield item, f"[{number}]", info.item_type
    elif isinstance(info, mi.TupleType):
        for number, (item, inner) in enumerate(zip(value, info.item_types, strict=True)):
            yield item, f"[{number}]", inner
    elif isinstance(info, (mi.SetType, mi.FrozenSetType)):
        for item in value:
            yield item, f"{{{item!r:.40}}}", info.item_type
    elif isinstance(info, mi.DictType):
        for key, item in value.items():
            yield key, f".keys(): {key!r:.40}", info.key_type
            yield item, f"[{key!r:.40}]", info.value_type
    elif isinstance(info, mi.TypedDictType):
        for field in info.fields:
            if field.encode_name in value:
                yield value[field.encode_name], f"[{field.encode_name!r}]", field.type
    elif isinstance(info, (mi.StructType, mi.DataclassType, mi.NamedTupleType)):
        for field in info.fields:
            item = getattr(value, field.name, msgspec.UNSET)
            if item is not msgspec.UNSET:
                yield item, f".{field.name}", field.type


def _python_type(info: mi.Type) -> Any:
    """The type itself, of one that has no parts."""
    found: Any = SCALARS.get(type(info))
    if isinstance(info, mi.EnumType) or (isinstance(info, mi.CustomType) and info.cls is not object):
        found = info.cls
    if isinstance(info, mi.LiteralType):
        found = Literal[info.values]
    limits: Mapping[str, Any] = limits_of(info)
    return Annotated[found, msgspec.Meta(**limits)] if found is not None and limits else found


def spelled(info: mi.Type) -> str:
    """A type as it is written in a program."""
    info = unwrapped(info)
    if isinstance(info, mi.NoneType):
        return "None"
    if type(info) in SCALARS:
        limits = ", ".join(f"{name} {limit}" for name, limit in limits_of(info).items())
        return SCALARS[type(info)].__name__ + (f" ({limits})" if limits else "")
    if isinstance(info, mi.VarTupleType):
        return f"tuple[{spelled(info.item_type)}, ...]"
    if isinstance(info, (mi.ListType, mi.SetType, mi.FrozenSetType)):
        return f"{CONTAINERS[type(info)].__name__}[{spelled(info.item_type)}]"
    if isinstance(info, mi.TupleType):
        return f"tuple[{', '.join(map(spelled, info.item_types)) or '()'}]"
    if isinstance(info, mi.DictType):
        return f"dict[{spelled(info.key_type)}, {spelled(info.value_type)}]"
    if isinstance(info, mi.UnionType):
        return " | ".join(map(spelled, info.types))
    if isinstance(info, mi.LiteralType):
        return f"Literal[{', '.join(map(repr, info.values))}]"
    cls = getattr(info, "cls", object)
    return "Any" if cls is object else str(cls.__qualname__)


def misfit(info: mi.Type, value: Any, fits: RoundTrip, back: Any, error: Exception | None) -> Misfit:
    """Why a value was not read back (`error`), or not as it was (`back`)."""
    try:
        found = find_misfit(info, value, fits)
    except (StateError, AttributeError, TypeError, ValueError, RecursionError):
        found = None
    if found is not None:
        return found
    return Misfit("", spelled(info), value, str(error) if error is not None else f"it would come back as {back!r:.200}")


def wrong_type(found: Misfit, value: Any, *, where: str = "a state", detail: str = "", note: str = "") -> StateTypeError:
    """The error for a value that does not fit; `where` names the state."""
    kind = type(found.value)
    named = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    place = f"{found.path} of the value" if found.path else "it"
    what = f"a value of another type was written to {where}: {place} is of type {named}, expected {found.expected}"
    if found.expected in (named, "Any"):
        what = f"a value was written to {where} that would not be read back as it is: {place} is of type {named}"
    lines = [detail.rstrip(), f"value: {value!r:.300}"]
    if found.path:
        lines.append(f"{found.path}: {found.value!r:.200}")
    lines += [found.note, note]
    return StateTypeError(what, detail="\n".join(line for line in lines if line), hint=found.hint())
