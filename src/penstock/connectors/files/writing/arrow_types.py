"""From the annotations of a class to an Arrow schema."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.records import field_names

_PLAIN: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.datetime: pa.timestamp("us", tz="UTC"),
    datetime.date: pa.date32(),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
    decimal.Decimal: pa.decimal128(38, 18),
    uuid.UUID: pa.uuid(),
    type(None): pa.null(),
}


def arrow_schema(schema: type | pa.Schema) -> pa.Schema:
    """The schema itself, or that of a dataclass, a NamedTuple or a msgspec Struct.

    >>> from typing import NamedTuple
    >>> class Point(NamedTuple):
    ...     x: int
    ...     label: str | None
    >>> arrow_schema(Point).field("label").type
    DataType(string)
    """
    if isinstance(schema, pa.Schema):
        return schema.remove_metadata()
    return pa.schema(_fields(schema))


def output_fields(cls: type) -> tuple[str, ...]:
    """The fields of a class as they are written out: also those its constructor does not take."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return field_names(cls)


def _fields(cls: type) -> list[pa.Field]:
    names = output_fields(cls)
    try:
        hints = typing.get_type_hints(cls)
    except NameError as error:
        what = f"the annotations of {cls.__name__} cannot be resolved"
        raise ConfigError(what, detail=str(error), hint="give schema= as a pa.schema") from error
    return [pa.field(name, _arrow_type(hints.get(name, Any), f"{cls.__name__}.{name}")) for name in names]


def _arrow_type(hint: Any, where: str) -> pa.DataType:
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _arrow_type(arguments[0], where)
    if origin in (typing.Union, types.UnionType):
        some = {_arrow_type(argument, where) for argument in arguments if argument is not type(None)}
        if some == {pa.int64(), pa.float64()}:
            return pa.float64()
        if len(some) == 1:
            return some.pop()
    elif origin is typing.Literal and len({type(argument) for argument in arguments}) == 1:
        return _arrow_type(type(arguments[0]), where)
    elif arguments and (origin in (list, set, frozenset, Sequence) or (origin is tuple and arguments[1:] == (...,))):
        return pa.list_(_arrow_type(arguments[0], where))
    elif origin in (dict, Mapping) and arguments:
        return pa.map_(_arrow_type(arguments[0], where), _arrow_type(arguments[1], where))
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        kinds = {type(member.value) for member in hint}
        if len(kinds) == 1:
            return _arrow_type(kinds.pop(), where)
    elif dataclasses.is_dataclass(hint) or hasattr(hint, "__struct_fields__") or hasattr(hint, "_fields"):
        return pa.struct(_fields(hint))
    raise ConfigError(
        f"there is no Arrow type for {where}, which is {getattr(hint, '__name__', hint)}",
        hint="give schema= as a pa.schema, or leave it out to have the types inferred",
    )
