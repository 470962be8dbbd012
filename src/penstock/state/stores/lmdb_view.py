"""A read transaction over an LMDB store: one committed content, until it is closed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import cast

import lmdb
import msgspec

from penstock.state.entries.store_keys import prefix_end
from penstock.state.stores import long_keys
from penstock.state.stores.store import StoreBrokenError, StoreView, of_closed_view

FORMAT = 1
META_KEY = b"\x00"
"""Below every data key, which begin with a group of two bytes: so data can still be appended."""
FIRST_KEY = b"\x00\x00"


class Meta(msgspec.Struct, frozen=True, array_like=True):
    """What a store says of itself. `long`: keys above 470 bytes have been put."""

    format: int = FORMAT
    applied: str | None = None
    long: bool = False


_inherited: list[lmdb.Transaction] = []
_decode_meta = msgspec.msgpack.Decoder(Meta).decode
encode_meta = msgspec.msgpack.Encoder().encode


def read_meta(transaction: lmdb.Transaction) -> Meta:
    """The meta record as this transaction sees it."""
    data = transaction.get(META_KEY)
    if data is None:
        return Meta()
    try:
        meta = _decode_meta(data)
    except msgspec.MsgspecError as error:
        raise StoreBrokenError("the local store's own record cannot be read", detail=str(error)) from None
    if meta.format != FORMAT:
        raise StoreBrokenError(f"the local store has format {meta.format}; this Penstock reads {FORMAT}")
    return meta


class LmdbView(StoreView):
    """`get`, `scan` and `range` over committed state. Close it soon: it keeps pages from being used again."""

    __slots__ = ("_get", "_long", "_process", "_release", "_transaction", "applied")

    def __init__(self, transaction: lmdb.Transaction, release: Callable[[], None]) -> None:
        self._transaction: lmdb.Transaction | None = transaction
        self._process = os.getpid()
        self._release: Callable[[], None] | None = release
        self._get = cast(Callable[[bytes], bytes | None], transaction.get)
        meta = read_meta(transaction)
        self.applied = meta.applied
        self._long = meta.long

    def get(self, key: bytes) -> bytes | None:
        """The value of a store key."""
        if len(key) >= long_keys.STORED and long_keys.is_long(key):
            found = self._get(long_keys.stored_key(key))
            return None if found is None else long_keys.restored(found)[1]
        return self._get(key)

    def get_many(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """The values of those store keys that are there. In sorted order a look-up costs half of what a random one does."""
        if self._long and any(map(long_keys.is_long, keys)):
            found = {key: self.get(key) for key in keys}
            return {key: value for key, value in found.items() if value is not None}
        get = self._get
        return {key: value for key in sorted(keys) if (value := get(key)) is not None}

    def range(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """Entries with `start <= key < stop` (None: to the end), in order."""
        if not self._long:
            return self._stored(start, stop)
        near = start[: long_keys.KEPT]
        far = stop if stop is None or len(stop) <= long_keys.KEPT else prefix_end(stop[: long_keys.KEPT])
        entries = long_keys.in_order(self._stored(near, far))
        if near == start and far == stop:
            return entries
        return ((key, value) for key, value in entries if start <= key and (stop is None or key < stop))

    def _stored(self, start: bytes, stop: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        if self._transaction is None:
            of_closed_view(start)
            return
        with self._transaction.cursor() as cursor:
            if not cursor.set_range(max(start, FIRST_KEY)[: long_keys.STORED]):
                return
            entries = cast(Iterator[tuple[bytes, bytes]], cursor.iternext())
            if stop is None:
                yield from entries
                return
            for entry in entries:
                if entry[0] >= stop:
                    return
                yield entry

    def close(self) -> None:
        """End the read transaction; harmless when it has ended."""
        if self._release is not None and self._transaction is not None:
            release, self._release = self._release, None
            if self._process != os.getpid():
                _inherited.append(self._transaction)  # to end it here would end it in the parent
                return
            transaction, self._transaction, self._get = self._transaction, None, of_closed_view
            transaction.abort()
            del transaction  # and with it the place among the readers
            release()
