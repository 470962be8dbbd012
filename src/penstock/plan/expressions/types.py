"""Types by name, and the types of Python values.

The names are those of JSON forms and messages: `int64`, `string`, `timestamp[us, UTC]`, `decimal(10, 2)`, `list<int64>`.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from penstock.errors import PlanError, did_you_mean

_PLAIN: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "large_string": pa.large_string(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "date": pa.date32(),
}
_NAMES = {kind: name for name, kind in _PLAIN.items()}
_ALSO = {
    "int": "int64",
    "float": "float64",
    "double": "float64",
    "str": "string",
    "bytes": "binary",
    "boolean": "bool",
    "datetime": "timestamp[us]",
    "timestamp": "timestamp[us]",
    "timedelta": "duration[us]",
    "duration": "duration[us]",
    "date32": "date",
    "float32": "float32",
}
_PYTHON: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime: pa.timestamp("us"),
    date: pa.date32(),
    timedelta: pa.duration("us"),
}
_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns)(?:, ?([A-Za-z0-9_+:/-]{1,64}))?\]")
_DURATION = re.compile(r"duration\[(s|ms|us|ns)\]")
_DECIMAL = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)")
_LIST = re.compile(r"list<(.{1,200})>")
_INT64 = (-(1 << 63), (1 << 63) - 1)


def type_text(kind: pa.DataType) -> str:
    """The name of a type.

    >>> type_text(pa.timestamp("us", "UTC")), type_text(pa.list_(pa.int64()))
    ('timestamp[us, UTC]', 'list<int64>')
    """
    if kind in _NAMES:
        return _NAMES[kind]
    if pa.types.is_timestamp(kind):
        return f"timestamp[{kind.unit}]" if kind.tz is None else f"timestamp[{kind.unit}, {kind.tz}]"
    if pa.types.is_duration(kind):
        return f"duration[{kind.unit}]"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if is_list(kind):
        return f"list<{type_text(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {type_text(field.type)}' for field in kind)}>"
    return str(kind)


def parse_type(text: str) -> pa.DataType:
    """The type of that name.

    >>> parse_type("decimal(10, 2)")
    Decimal128Type(decimal128(10, 2))
    """
    name = _ALSO.get(text, text)
    if name in _PLAIN:
        return _PLAIN[name]
    if found := _TIMESTAMP.fullmatch(name):
        return pa.timestamp(found[1], found[2])
    if found := _DURATION.fullmatch(name):
        return pa.duration(found[1])
    if (found := _DECIMAL.fullmatch(name)) and 1 <= int(found[1]) <= 38 and int(found[2]) <= int(found[1]):
        return pa.decimal128(int(found[1]), int(found[2]))
    if found := _LIST.fullmatch(name):
        return pa.list_(parse_type(found[1]))
    raise PlanError(
        f"there is no type {text!r:.100}",
        hint=did_you_mean(text, [*_PLAIN, *_ALSO])
        or f"types: {', '.join(_PLAIN)}, timestamp[us], duration[us], "
        "decimal(10, 2), list<int64>; or a type of Python's or Arrow's",
    )


def type_of(given: Any) -> pa.DataType:
    """What a person gave as a type: a name, an Arrow type, or one of Python's."""
    if isinstance(given, pa.DataType):
        if not _has_name(given):
            raise PlanError(f"nothing can be cast to {given}", hint="choose a type that has a name, such as string or int64")
        return given
    if isinstance(given, str):
        return parse_type(given)
    if given in _PYTHON:
        return _PYTHON[given]
    raise PlanError(f"{given!r:.100} is not a type", hint='for example int, "int64" or pa.int64()')


def _has_name(kind: pa.DataType) -> bool:
    try:
        return bool(parse_type(type_text(kind)) == kind)
    except PlanError:
        return False


def literal_type(value: Any) -> pa.DataType:
    """The type of a Python value as a literal."""
    if value is None:
        return pa.null()
    if isinstance(value, int) and not isinstance(value, bool) and not _INT64[0] <= value <= _INT64[1]:
        raise PlanError(f"{value} does not fit into 64 bits", hint="whole numbers of expressions have 64 bits; give a float")
    if isinstance(value, datetime) and value.tzinfo is not None:
        return pa.timestamp("us", "UTC")
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise PlanError(f"{value} cannot be part of an expression", hint="decimals are finite; give a float")
        return pa.scalar(value).type
    kind = next((arrow for python, arrow in _PYTHON.items() if type(value) is python), None)
    if kind is None:
        raise PlanError(
            f"{value!r:.100} (of type {type(value).__qualname__}) cannot be part of an expression",
            hint="values are None, bool, int, float, str, bytes, Decimal, datetime, date or timedelta; a column is col(name)",
        )
    return kind


# --- groups of types ---------------------------------------------------------------------------------------------------------


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def is_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind))


def is_floating(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind))


def is_decimal(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind))


def is_numeric(kind: pa.DataType) -> bool:
    return is_integer(kind) or is_floating(kind) or is_decimal(kind)


def is_null(kind: pa.DataType) -> bool:
    return bool(pa.types.is_null(kind))


def computed_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a column is computed with: that of its values."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return computed_type(kind.value_type)
    if str(kind) == "string_view":
        return pa.string()
    if str(kind) == "binary_view":
        return pa.binary()
    if pa.types.is_date64(kind):
        return pa.date32()
    return pa.float32() if pa.types.is_float16(kind) else kind
