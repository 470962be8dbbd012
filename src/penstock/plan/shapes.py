"""What a row of a file is to become: from a class, an Arrow schema, or nothing, to the columns to read and their types."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import inspect

from penstock.errors import ConfigError
from penstock.records import RowType, field_names

_SCALARS: dict[type[inspect.Type], pa.DataType] = {
    inspect.IntType: pa.int64(),
    inspect.FloatType: pa.float64(),
    inspect.StrType: pa.string(),
    inspect.BoolType: pa.bool_(),
    inspect.DateTimeType: pa.timestamp("us"),
    inspect.DateType: pa.date32(),
    inspect.BytesType: pa.binary(),
}
_IN_JSON = (pa.int64(), pa.float64(), pa.string(), pa.bool_())


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """A column that is wanted. `arrow` is None for what only msgspec can make; `required`: there is no default."""

    name: str
    arrow: pa.DataType | None
    optional: bool = True
    required: bool = False
    default: Any = None

    @property
    def plain_default(self) -> bool:
        """May an absent value be filled in as a column?"""
        return self.default is None or isinstance(self.default, int | float | str | bool)


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The columns wanted, in order; `fields` is None for all there are. `typed`: with types, by a class or a schema."""

    cls: type | None
    fields: tuple[Field, ...] | None
    typed: bool
    renamed: bool = False

    @property
    def row(self) -> RowType:
        return RowType(self.cls)

    @property
    def names(self) -> list[str] | None:
        return None if self.fields is None else [f.name for f in self.fields]

    @property
    def columnar(self) -> bool:
        """Can every field be an Arrow column that gives the right Python value?"""
        return self.cls is None or all(f.arrow is not None and f.plain_default for f in self.fields or ())

    @property
    def columnar_in_json(self) -> bool:
        if not self.typed or self.renamed or not self.columnar:
            return False
        return self.cls is None or all(f.arrow in _IN_JSON for f in self.fields or ())


def shape_of(schema: Any, columns: Sequence[str] | None) -> Shape:
    """The shape that a source's `schema` and `columns` ask for."""
    if schema is None:
        wanted = None if columns is None else tuple(Field(name, None) for name in columns)
        return Shape(None, wanted, typed=False)
    if isinstance(schema, pa.Schema):
        fields = [Field(f.name, f.type, f.nullable, required=not f.nullable) for f in schema]
        return Shape(None, _chosen(fields, columns), typed=True)
    if not isinstance(schema, type):
        raise ConfigError(
            f"{schema!r} cannot be the schema of a file",
            hint="use a dataclass, a NamedTuple, a msgspec Struct or a pyarrow schema",
        )
    names = field_names(schema)
    try:
        info = inspect.type_info(schema)
    except (TypeError, NameError) as error:
        raise ConfigError(f"the fields of {schema.__name__} have types that cannot be read", detail=str(error)) from error
    assert isinstance(info, inspect.StructType | inspect.DataclassType | inspect.NamedTupleType)
    by_name = {f.name: f for f in info.fields}
    fields = [_field(by_name[name]) for name in names if name in by_name]
    renamed = any(f.encode_name != f.name for f in info.fields)
    special = isinstance(info, inspect.StructType) and (info.tag is not None or info.forbid_unknown_fields or info.array_like)
    return Shape(schema, _chosen(fields, columns), typed=True, renamed=renamed or special)


def _chosen(fields: list[Field], columns: Sequence[str] | None) -> tuple[Field, ...]:
    if columns is None:
        return tuple(fields)
    by_name = {f.name: f for f in fields}
    unknown = [name for name in columns if name not in by_name]
    if unknown:
        raise ConfigError(
            f"columns= names {', '.join(unknown)}, which the schema does not have", hint=f"it has {', '.join(by_name) or 'none'}"
        )
    return tuple(by_name[name] for name in columns)


def _field(field: inspect.Field) -> Field:
    kind, optional = field.type, False
    if isinstance(kind, inspect.UnionType):
        rest = [t for t in kind.types if not isinstance(t, inspect.NoneType)]
        optional = len(rest) < len(kind.types)
        kind = rest[0] if len(rest) == 1 else kind
    default: Any = field.default
    if default is msgspec.NODEFAULT:
        default = None if field.default_factory is msgspec.NODEFAULT else _MADE
    return Field(field.name, _arrow(kind), optional, field.required, default)


_MADE = object()
"""A default that a factory makes."""


def _arrow(kind: inspect.Type) -> pa.DataType | None:
    """The Arrow type of a scalar without constraints."""
    arrow = _SCALARS.get(type(kind))
    constraints = [name for name in kind.__struct_fields__ if getattr(kind, name) is not None]
    return None if arrow is None or constraints else arrow
