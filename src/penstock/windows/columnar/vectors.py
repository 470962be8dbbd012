"""Vectors: columns of numbers, or of any Python values.

Laws:
- A vector is an array of int64, of float64, or of objects. Numbers that fit none of the first two exactly are objects: no sum
  is ever cut short.
- Values that are missing are not in a vector: `valid` says which rows have one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.state.encoding.untyped import decode_untyped, encode_untyped

Vector = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]

OBJECT = np.dtype(object)
INT = np.dtype(np.int64)
FLOAT = np.dtype(np.float64)

EXACT_IN_FLOAT = 1 << 53
EXACT_IN_INT = 1 << 63


def vector_of(column: pa.Array | list[Any]) -> tuple[Vector, Mask | None]:
    """The values of a column, and which rows have one (None: all)."""
    if isinstance(column, list):
        return _of_list(column)
    valid: Mask | None = None
    if column.null_count:
        valid = np.asarray(column.is_valid())
    kind = column.type
    if pa.types.is_signed_integer(kind) or pa.types.is_uint8(kind) or pa.types.is_uint16(kind) or pa.types.is_uint32(kind):
        filled = column if valid is None else column.fill_null(0)
        return filled.to_numpy(zero_copy_only=False).astype(INT, copy=False), valid
    if pa.types.is_floating(kind):
        filled = column if valid is None else column.fill_null(0)
        return filled.to_numpy(zero_copy_only=False).astype(FLOAT, copy=False), valid
    return objects(column.to_pylist()), valid


def _of_list(values: list[Any]) -> tuple[Vector, Mask | None]:
    kinds = set(map(type, values))
    valid: Mask | None = None
    if type(None) in kinds:
        valid = np.fromiter((value is not None for value in values), dtype=bool, count=len(values))
        kinds.discard(type(None))
    try:
        if kinds == {int}:
            return np.asarray([value or 0 for value in values] if valid is not None else values, dtype=INT), valid
        if kinds == {float}:
            return np.asarray([0.0 if value is None else value for value in values], dtype=FLOAT), valid
    except OverflowError:
        pass
    return objects(values), valid


def objects(values: list[Any]) -> Vector:
    """A vector of any values; numpy would take lists apart."""
    out = np.empty(len(values), dtype=OBJECT)
    out[:] = values
    return out


def full(size: int, dtype: np.dtype[Any], number: Any) -> Vector:
    """A vector that is all one number; of objects: all None."""
    return np.full(size, None if dtype == OBJECT else number, dtype=dtype)


def alike(left: Vector, right: Vector) -> tuple[Vector, Vector]:
    """Both of one type, without loss."""
    if left.dtype == right.dtype:
        return left, right
    if OBJECT not in (left.dtype, right.dtype) and all(v.dtype == FLOAT or largest(v) <= EXACT_IN_FLOAT for v in (left, right)):
        return left.astype(FLOAT, copy=False), right.astype(FLOAT, copy=False)
    return as_objects(left), as_objects(right)


def as_objects(vector: Vector) -> Vector:
    return vector if vector.dtype == OBJECT else objects(vector.tolist())


def largest(vector: Vector) -> int:
    """The greatest absolute value of an int64 vector."""
    return max(abs(int(vector.max())), abs(int(vector.min()))) if len(vector) else 0


def combined(function: Callable[[Any, Any], Any], left: Vector, right: Vector) -> Vector:
    """Objects, two by two; None is no value."""
    return objects(
        [b if a is None else a if b is None else function(a, b) for a, b in zip(left.tolist(), right.tolist(), strict=True)]
    )


def folded(function: Callable[[Any, Any], Any], values: Vector, groups: Rows, size: int) -> Vector:
    """The objects of each group, one after another."""
    out: list[Any] = [None] * size
    for group, value in zip(groups.tolist(), values.tolist(), strict=True):
        held = out[group]
        out[group] = value if held is None else function(held, value)
    return objects(out)


# --- for people ------------------------------------------------------------------------------------------------------------


def values_of(vector: Vector, missing: Mask | None) -> list[Any]:
    """Python values, with None for what is missing."""
    values: list[Any] = vector.tolist()
    if missing is None:
        return values
    return [None if none else value for value, none in zip(values, missing.tolist(), strict=True)]


def column_of(vector: Vector, missing: Mask | None) -> pa.Array:
    """An Arrow column; raises what Arrow raises for values of different types."""
    if vector.dtype == OBJECT:
        return pa.array(values_of(vector, missing))
    return pa.array(vector, mask=missing if missing is not None and missing.any() else None)


# --- as bytes --------------------------------------------------------------------------------------------------------------


def dump_vector(vector: Vector) -> tuple[str, bytes]:
    """(type, bytes). Numbers are little endian."""
    if vector.dtype == OBJECT:
        return "any", msgspec.msgpack.encode([None if value is None else _dump(value) for value in vector.tolist()])
    return ("int" if vector.dtype == INT else "float"), vector.astype(vector.dtype.newbyteorder("<"), copy=False).tobytes()


def load_vector(kind: str, data: bytes) -> Vector:
    if kind == "any":
        return objects([None if value is None else _load(value) for value in _blobs.decode(data)])
    return np.frombuffer(data, dtype="<i8" if kind == "int" else "<f8").astype(INT if kind == "int" else FLOAT, copy=False)


def _dump(value: Any) -> bytes:
    """Integers may be of any size."""
    if type(value) is int and not -EXACT_IN_INT <= value < EXACT_IN_INT:
        return b"i" + str(value).encode()
    return b"v" + encode_untyped(value)


def _load(data: bytes) -> Any:
    return int(data[1:]) if data[:1] == b"i" else decode_untyped(data[1:])


_blobs = msgspec.msgpack.Decoder(list[bytes | None])
