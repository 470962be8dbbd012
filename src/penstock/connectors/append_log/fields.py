"""What the records of a log have to look like, so that one that cannot be read is refused when it is appended."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from penstock.plan.shapes import Shape

_TYPES: dict[pa.DataType, str] = {pa.int64(): "int", pa.float64(): "float", pa.string(): "str", pa.bool_(): "bool"}
_PYTHON: dict[str, Any] = {"int": int, "float": float, "str": str, "bool": bool}


class FieldShown(msgspec.Struct, frozen=True):
    """A field of a record. `type`: any, if it is none of the plain ones."""

    name: str
    type: str = "any"
    optional: bool = True
    required: bool = False


class Fields(msgspec.Struct, frozen=True):
    """`fields.json`. None: any object."""

    fields: list[FieldShown] | None = None
    version: int = 1


def fields_of(shape: Shape) -> Fields:
    """What a source's shape asks of its records. One whose names in JSON are others is checked when it is read."""
    if shape.fields is None or not shape.typed or shape.renamed:
        return Fields()
    return Fields(
        [
            FieldShown(f.name, "any" if f.arrow is None else _TYPES.get(f.arrow, "any"), f.optional, f.required)
            for f in shape.fields
        ]
    )


def decoder_of(fields: Fields) -> msgspec.json.Decoder[Any]:
    """Decodes a record, or raises `msgspec.ValidationError`."""
    if fields.fields is None:
        return msgspec.json.Decoder(dict[str, Any])
    columns: list[Any] = []
    for field in fields.fields:
        python = _PYTHON.get(field.type, Any)
        if field.optional and python is not Any:
            python = python | None
        columns.append((field.name, python) if field.required else (field.name, python, None))
    return msgspec.json.Decoder(msgspec.defstruct("Record", columns, kw_only=True, rename=None))
