"""Columns of entries. A column has a *piece* of bytes of each entry, unpacks pieces into *parts*, and shows parts in Arrow.

Law: a raw key is the pieces of its columns, one after another; so is a raw value.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from itertools import islice
from operator import add
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.errors import StateError
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK
from penstock.state.encoding.json_values import tagged, untagged
from penstock.state.encoding.stored_values import STAMP_SIZE, framed, stamp_of, unframed
from penstock.state.tabular.conversions import Conversion

_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999
"""The years 1 to 9999."""

_pack = msgspec.msgpack.Encoder().encode
_pack_key = msgspec.msgpack.Encoder(order="deterministic").encode
_unpack = msgspec.msgpack.Decoder().decode


class Column:
    """One column: from pieces to parts to Arrow (raises one of `MISFITS`), and back. Without more, the pieces are the parts."""

    field: pa.Field
    required = True

    def unpack(self, pieces: list[bytes]) -> Any:
        return pieces

    def pack(self, parts: Sequence[Any]) -> Sequence[bytes]:
        return parts

    def absent(self, before: list[bytes]) -> Sequence[bytes]:
        """Pieces for a column that is not required and not there. `before`: what is before them in each key or value."""
        raise NotImplementedError

    def read(self, parts: Sequence[Any]) -> pa.Array:
        raise NotImplementedError

    def write(self, array: pa.Array) -> Sequence[Any]:
        raise NotImplementedError

    def part_to_json(self, part: Any) -> Any:
        raise NotImplementedError

    def part_from_json(self, value: Any) -> Any:
        raise NotImplementedError


def unreadable_to_json(column: Column, part: Any) -> Any:
    """What stands in `as_json` for a part that the column cannot hold."""
    try:
        return column.part_to_json(part)
    except Exception:
        raise StateError(
            f"stored bytes cannot be read for column {column.field.name!r}", detail=f"the bytes: {part!r:.200}"
        ) from None


class TimeColumn(Column):
    """Milliseconds since 1970 as a timestamp; the end of time (or, for a start, its beginning) is null. Parts are integers."""

    def __init__(self, name: str, *, start: bool = False) -> None:
        self.field = pa.field(name, pa.timestamp("ms", "UTC"))
        self._null = MIN_WATERMARK if start else MAX_WATERMARK

    def unpack(self, pieces: list[bytes]) -> Any:
        return (np.frombuffer(b"".join(pieces), ">u8") ^ np.uint64(1 << 63)).astype(np.uint64).view(np.int64)

    def pack(self, parts: Sequence[int]) -> Sequence[bytes]:
        return [(time + (1 << 63)).to_bytes(8, "big") for time in parts]

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


class ExpiryColumn(TimeColumn):
    """When a value expires; one that never does has the end of time."""

    required = False

    def __init__(self) -> None:
        super().__init__("expires")

    def unpack(self, pieces: list[bytes]) -> Any:
        return np.frombuffer(b"".join(pieces), ">i8").astype(np.int64)

    def pack(self, parts: Sequence[int]) -> Sequence[bytes]:
        return [time.to_bytes(8, "big", signed=True) for time in parts]

    def absent(self, before: list[bytes]) -> Sequence[bytes]:
        return self.pack([MAX_WATERMARK] * len(before))


class NumberColumn(Column):
    """A number, eight bytes. Without one, the entries of what is before it are numbered."""

    required = False

    def __init__(self, name: str) -> None:
        self.field = pa.field(name, pa.int64())

    def unpack(self, pieces: list[bytes]) -> Any:
        return np.frombuffer(b"".join(pieces), ">u8")

    def pack(self, parts: Sequence[int]) -> Sequence[bytes]:
        return [number.to_bytes(8, "big") for number in parts]

    def absent(self, before: list[bytes]) -> Sequence[bytes]:
        seen: dict[bytes, int] = {}
        found = []
        for one in before:
            seen[one] = seen.get(one, -1) + 1
            found.append(seen[one])
        return self.pack(found)

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


class ValueColumn(Column):
    """MessagePack values of a type.

    `canonical`: of keys, makes equal ones of equal values. `exact`: 1 is not 1.0. `pickled`: the bytes as they are.
    """

    def __init__(
        self,
        name: str,
        conversion: Conversion,
        canonical: Callable[[bytes], bytes] | None = None,
        *,
        exact: bool = False,
        pickled: bool = False,
    ) -> None:
        self.field = conversion.field(name)
        self._conversion = conversion
        self._canonical = canonical
        self._exact = exact
        self._pickled = pickled
        self._decoder: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list.__class_getitem__(conversion.annotation))

    def read(self, parts: Sequence[bytes]) -> pa.Array:
        return self._conversion.to_arrow(self.values(parts))

    def values(self, parts: Sequence[bytes]) -> list[Any]:
        """Decoded, all at once."""
        if self._pickled or self._conversion.is_json:
            return list(parts)
        data = b"".join(parts)
        values = self._decoder.decode(b"\xdd" + len(parts).to_bytes(4, "big") + data)
        if self._exact and not _pack(values).endswith(data):
            raise ValueError("integers among floats")
        return values

    def write(self, array: pa.Array) -> Sequence[bytes]:
        values = self._conversion.from_arrow(array)
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


class ItemsColumn(Column):
    """A chunk of a list: items, each with its length before it, and maybe with the time it expires."""

    def __init__(self, name: str, conversion: Conversion, *, ttl: bool, pickled: bool) -> None:
        self._each = ValueColumn(name, conversion, pickled=pickled)
        self._expires = ExpiryColumn() if ttl else None
        item = (
            pa.field("item", pa.struct([self._expires.field, conversion.field("value")]))
            if self._expires
            else conversion.field("item")
        )
        self.field = pa.field(name, pa.list_(item))

    def read(self, parts: Sequence[bytes]) -> pa.Array:
        items: list[bytes] = []
        offsets = [0, *(len(unframed(chunk, items)) for chunk in parts)]
        if self._expires is None:
            flat = self._each.read(items)
        else:
            stamps = self._expires.read(self._expires.unpack([item[:STAMP_SIZE] for item in items]))
            values = self._each.read([item[STAMP_SIZE:] for item in items])
            flat = pa.StructArray.from_arrays([stamps, values], fields=list(self.field.type.value_type))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, type=self.field.type)

    def write(self, array: pa.Array) -> Sequence[bytes]:
        if array.null_count or not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
            raise ValueError("a row needs a list of items")
        items = iter(self._items(array.flatten()))
        return [framed(islice(items, length)) for length in array.value_lengths().to_pylist()]

    def _items(self, flat: pa.Array) -> Sequence[bytes]:
        if self._expires is None:
            return self._each.write(flat)
        if pa.types.is_struct(flat.type) and {field.name for field in flat.type} == {"expires", "value"}:
            named = dict(zip([field.name for field in flat.type], flat.flatten(), strict=True))
            stamps, values = self._expires.pack(self._expires.write(named["expires"])), self._each.write(named["value"])
        else:
            values = self._each.write(flat)
            stamps = self._expires.pack([MAX_WATERMARK] * len(values))
        return list(map(add, stamps, values))

    def part_to_json(self, part: bytes) -> Any:
        return {"$raw": b64encode(part).decode(), "items": [self._shown(item) for item in unframed(part)]}

    def _shown(self, item: bytes) -> Any:
        if self._expires is None:
            return self._each.part_to_json(item)
        expires = stamp_of(item)
        return {
            "expires": None if expires == MAX_WATERMARK else expires,
            "value": self._each.part_to_json(item[STAMP_SIZE:]),
        }

    def part_from_json(self, value: Any) -> bytes:
        return part_from_json(value)
