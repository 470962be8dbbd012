"""What columns are made of: a store key and a value are split into *parts*, and each column knows how its parts are shown."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.errors import StateError
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK
from penstock.snapshots.tabular.json_text import tagged, untagged
from penstock.snapshots.tabular.shapes import Shape

_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999
"""The years 1 to 9999."""

_pack = msgspec.msgpack.Encoder().encode
_pack_key = msgspec.msgpack.Encoder(order="deterministic").encode
_unpack = msgspec.msgpack.Decoder().decode


class Column:
    """One column: from parts to Arrow (raises one of `MISFITS`), and back."""

    field: pa.Field
    required = True

    def read(self, parts: Sequence[Any]) -> pa.Array:
        raise NotImplementedError

    def write(self, array: pa.Array) -> Sequence[Any]:
        raise NotImplementedError

    def part_to_json(self, part: Any) -> Any:
        raise NotImplementedError

    def part_from_json(self, value: Any) -> Any:
        raise NotImplementedError


Entry = tuple[int, bytes, bytes]
"""(group, raw key, raw value)"""


class Layout:
    """The columns of a kind of state."""

    columns: list[Column]

    def split(self, raw_keys: list[bytes], raw_values: list[bytes]) -> list[Sequence[Any]]:
        """The parts of each column."""
        raise NotImplementedError

    def join(self, parts: list[Any], group: Callable[[bytes], int]) -> list[Entry]:
        """Entries of parts; None for a column that is not required. `group` gives the group of a key."""
        raise NotImplementedError


def unreadable_to_json(column: Column, part: Any) -> Any:
    """What stands in `as_json` for a part that the column cannot hold."""
    try:
        return column.part_to_json(part)
    except Exception:
        raise StateError(
            f"stored bytes cannot be read for column {column.field.name!r}", detail=f"the bytes: {part!r:.200}"
        ) from None


class Times(Column):
    """Milliseconds since 1970 as a timestamp; the end of time (or, for a start, its beginning) is null. Parts are integers."""

    END = MAX_WATERMARK

    def __init__(self, name: str, *, start: bool = False, required: bool = True) -> None:
        self.field = pa.field(name, pa.timestamp("ms", "UTC"))
        self.required = required
        self._null = MIN_WATERMARK if start else MAX_WATERMARK

    @staticmethod
    def unpack(data: bytes) -> Any:
        """Times of store keys, one after another."""
        return (np.frombuffer(data, ">u8") ^ np.uint64(1 << 63)).astype(np.uint64).view(np.int64)

    @staticmethod
    def unpack_plain(data: bytes) -> Any:
        return np.frombuffer(data, ">i8").astype(np.int64)

    def read(self, parts: Any) -> pa.Array:
        unbounded = parts == self._null
        if ((parts < _FIRST_MS) | (parts > _LAST_MS))[~unbounded].any():
            raise ValueError("a time outside of the years 1 to 9999")
        return pa.array(parts, pa.int64(), mask=unbounded if unbounded.any() else None).cast(self.field.type)

    def write(self, array: pa.Array) -> Sequence[int]:
        if pa.types.is_integer(array.type):
            array = array.cast(pa.int64())
        elif not pa.types.is_null(array.type):
            unit = pa.timestamp("ms", array.type.tz) if pa.types.is_timestamp(array.type) else self.field.type
            array = array.cast(unit).cast(pa.int64())
        return [self._null if time is None else time for time in array.to_pylist()]

    def part_to_json(self, part: Any) -> int:
        return int(part)

    def part_from_json(self, value: Any) -> int:
        return int(value)


class Counted(Column):
    """A number, eight bytes."""

    required = False

    def __init__(self, name: str) -> None:
        self.field = pa.field(name, pa.int64())

    @staticmethod
    def unpack(data: bytes) -> Any:
        return np.frombuffer(data, ">u8")

    def read(self, parts: Any) -> pa.Array:
        return pa.array(parts.astype(np.uint64)).cast(pa.int64())

    def write(self, array: pa.Array) -> Sequence[int]:
        numbers: list[int | None] = array.cast(pa.int64()).to_pylist()
        if any(number is None or number < 0 for number in numbers):
            raise ValueError("numbers must be 0 or more")
        return numbers  # type: ignore[return-value]

    def part_to_json(self, part: Any) -> int:
        return int(part)

    def part_from_json(self, value: Any) -> int:
        return int(value)


class Encoded(Column):
    """MessagePack values of a shape.

    `canonical`: of keys, makes equal ones of equal values. `exact`: 1 is not 1.0. `pickled`: the bytes as they are.
    """

    def __init__(
        self,
        name: str,
        shape: Shape,
        canonical: Callable[[bytes], bytes] | None = None,
        *,
        exact: bool = False,
        pickled: bool = False,
    ) -> None:
        self.field = shape.field(name)
        self._shape = shape
        self._canonical = canonical
        self._exact = exact
        self._pickled = pickled
        self._decoder: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list.__class_getitem__(shape.annotation))

    def read(self, parts: Sequence[bytes]) -> pa.Array:
        return self._shape.to_arrow(self.values(parts))

    def values(self, parts: Sequence[bytes]) -> list[Any]:
        """Decoded, all at once."""
        if self._pickled or self._shape.is_json:
            return list(parts)
        data = b"".join(parts)
        values = self._decoder.decode(b"\xdd" + len(parts).to_bytes(4, "big") + data)
        if self._exact and not _pack(values).endswith(data):
            raise ValueError("integers among floats")
        return values

    def write(self, array: pa.Array) -> Sequence[bytes]:
        values = self._shape.from_arrow(array)
        if self._pickled:
            return values
        if self._canonical is None:
            return [_pack(value) for value in values]
        canonical = self._canonical
        return [canonical(_pack_key(value)) for value in values]

    def part_to_json(self, part: bytes) -> Any:
        return {"$raw": b64encode(part).decode()} if self._pickled else part_to_json(part)

    def part_from_json(self, value: Any) -> bytes:
        return part_from_json(value)


def part_to_json(part: bytes) -> Any:
    try:
        return tagged(_unpack(part))
    except (msgspec.MsgspecError, ValueError):
        return {"$raw": b64encode(part).decode()}


def part_from_json(value: Any) -> bytes:
    if isinstance(value, dict) and "$raw" in value:
        return b64decode(value["$raw"])
    return _pack(untagged(value))


class Items(Column):
    """A chunk of a list: items, each with its length before it, and maybe with the time it expires."""

    def __init__(self, name: str, shape: Shape, *, ttl: bool, pickled: bool) -> None:
        self._each = Encoded(name, shape, pickled=pickled)
        self._expires = Times("expires") if ttl else None
        item = pa.field("item", pa.struct([self._expires.field, shape.field("value")])) if self._expires else shape.field("item")
        self.field = pa.field(name, pa.list_(item))

    def read(self, parts: Sequence[bytes]) -> pa.Array:
        items: list[bytes] = []
        offsets = [0]
        for chunk in parts:
            at, end = 0, len(chunk)
            while at < end:
                start = at + 4
                at = start + int.from_bytes(chunk[at:start], "big")
                items.append(chunk[start:at])
            offsets.append(len(items))
        if self._expires is None:
            flat = self._each.read(items)
        else:
            stamps = self._expires.read(Times.unpack_plain(b"".join([item[:8] for item in items])))
            flat = pa.StructArray.from_arrays(
                [stamps, self._each.read([item[8:] for item in items])], fields=list(self.field.type.value_type)
            )
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, type=self.field.type)

    def write(self, array: pa.Array) -> Sequence[bytes]:
        if array.null_count or not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
            raise ValueError("a row needs a list of items")
        flat = array.flatten()
        if self._expires is None:
            items = self._each.write(flat)
        elif pa.types.is_struct(flat.type) and {field.name for field in flat.type} == {"expires", "value"}:
            named = dict(zip([field.name for field in flat.type], flat.flatten(), strict=True))
            stamps, values = self._expires.write(named["expires"]), self._each.write(named["value"])
            items = [stamp.to_bytes(8, "big", signed=True) + value for stamp, value in zip(stamps, values, strict=True)]
        else:
            items = [Times.END.to_bytes(8, "big", signed=True) + value for value in self._each.write(flat)]
        framed = [len(item).to_bytes(4, "big") + item for item in items]
        chunks, at = [], 0
        for length in array.value_lengths().to_pylist():
            chunks.append(b"".join(framed[at : at + length]))
            at += length
        return chunks

    def part_to_json(self, part: bytes) -> Any:
        return {"$raw": b64encode(part).decode(), "items": self._shown(part)}

    def _shown(self, chunk: bytes) -> list[Any]:
        found, at = [], 0
        while at < len(chunk):
            start = at + 4
            at = start + int.from_bytes(chunk[at:start], "big")
            if self._expires is None:
                found.append(self._each.part_to_json(chunk[start:at]))
                continue
            stamp = int.from_bytes(chunk[start : start + 8], "big", signed=True)
            expires = None if stamp == Times.END else stamp
            found.append({"expires": expires, "value": self._each.part_to_json(chunk[start + 8 : at])})
        return found

    def part_from_json(self, value: Any) -> bytes:
        return part_from_json(value)
