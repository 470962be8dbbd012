"""Names of tables and columns, and what columns a class of records asks for. Names are always quoted, never part of a text."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import inspect

from penstock.errors import ConfigError
from penstock.records import field_names

LONGEST = 63
"""Bytes of a name; PostgreSQL would cut a longer one."""
NAMESPACE = "public"

_CLASSES: dict[type[inspect.Type], str] = {
    inspect.IntType: "bigint",
    inspect.FloatType: "double precision",
    inspect.StrType: "text",
    inspect.BoolType: "boolean",
    inspect.DateTimeType: "timestamptz",
    inspect.DateType: "date",
    inspect.TimeType: "time",
    inspect.TimeDeltaType: "interval",
    inspect.BytesType: "bytea",
    inspect.ByteArrayType: "bytea",
    inspect.DecimalType: "numeric",
    inspect.UUIDType: "uuid",
}
_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)


@dataclass(frozen=True, slots=True)
class Table:
    """A table in a namespace (a schema, as PostgreSQL calls it)."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"


@dataclass(frozen=True, slots=True)
class Column:
    """`type`: one of those that this module knows."""

    name: str
    type: str
    nullable: bool = True


def checked_name(name: Any, what: str) -> str:
    if not isinstance(name, str) or not name or "\0" in name or len(name.encode("utf-8", "replace")) > LONGEST:
        raise ConfigError(f"{what}: {name!r} is not valid as a name", hint=f"names have 1 to {LONGEST} bytes, and no NUL")
    return name


def table_named(name: Any, what: str) -> Table:
    """`orders`, of the namespace `public`, or `sales.orders`."""
    if not isinstance(name, str):
        raise ConfigError(f"{what}: {name!r} is not valid as a name", hint='for example "orders", or "sales.orders"')
    namespace, dot, bare = name.partition(".")
    return Table(checked_name(namespace, what), checked_name(bare, what)) if dot else Table(NAMESPACE, checked_name(name, what))


def checked_columns(names: Sequence[str], what: str) -> tuple[str, ...]:
    if isinstance(names, str):
        raise ConfigError(f"{what}: {names!r} is not a list of columns", hint=f"[{names!r}]")
    checked = tuple(checked_name(name, what) for name in names)
    if len(set(checked)) < len(checked):
        raise ConfigError(f"{what}: a column is named twice: {', '.join(checked)}")
    return checked


def columns_of(records: Any, what: str) -> tuple[Column, ...]:
    """The columns of a table for records of a class (dataclass, NamedTuple, msgspec Struct), or as an Arrow schema says."""
    if isinstance(records, pa.Schema):
        return tuple(Column(checked_name(f.name, what), _of_arrow(f.type), f.nullable) for f in records)
    if not isinstance(records, type):
        raise ConfigError(
            f"{what}: {records!r} has no columns", hint="give a dataclass, NamedTuple, msgspec Struct or Arrow schema"
        )
    names = field_names(records)
    try:
        info: Any = inspect.type_info(records)
    except (TypeError, NameError) as error:
        raise ConfigError(f"{what}: the fields of {records.__name__} cannot be read", detail=str(error)) from error
    by_name = {field.name: field for field in info.fields}
    return tuple(_column(checked_name(name, what), by_name[name].type) for name in names if name in by_name)


def _column(name: str, kind: inspect.Type) -> Column:
    nullable = isinstance(kind, inspect.NoneType | inspect.AnyType)
    if isinstance(kind, inspect.UnionType):
        rest = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        nullable = len(rest) < len(kind.types)
        if len(rest) > 1:
            return Column(name, "jsonb", nullable)
        kind = rest[0]
    return Column(name, _of_class(kind), nullable)


def _of_class(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.EnumType):
        return "bigint" if issubclass(kind.cls, enum.IntEnum) else "text"
    if isinstance(kind, inspect.LiteralType):
        return "text" if all(isinstance(value, str) for value in kind.values) else "bigint"
    if isinstance(kind, _LISTS):
        of = _CLASSES.get(type(kind.item_type))
        return f"{of}[]" if of else "jsonb"
    return _CLASSES.get(type(kind), "jsonb")


def _of_arrow(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_decimal(kind):
        return f"numeric({int(kind.precision)},{int(kind.scale)})"
    if types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if types.is_uint64(kind):
        return "numeric"
    if types.is_list(kind) or types.is_large_list(kind):
        of = _of_arrow(kind.value_type)
        return "jsonb" if of == "jsonb" or of.endswith("[]") else f"{of}[]"
    found: tuple[tuple[Any, str], ...] = (
        (types.is_boolean, "boolean"),
        (types.is_integer, "bigint"),
        (types.is_floating, "double precision"),
        (types.is_string, "text"),
        (types.is_large_string, "text"),
        (types.is_binary, "bytea"),
        (types.is_large_binary, "bytea"),
        (types.is_date, "date"),
        (types.is_time, "time"),
        (types.is_duration, "interval"),
    )
    return next((name for is_it, name in found if is_it(kind)), "jsonb")


def as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
