"""Which keys can match: null equals nothing, not even null."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.state.encoding.keys import KeyCodec
from penstock.windows.columnar.chunks import KeyIndex

_NIL = b"\xc0"
"""None in an encoded key; other values may have this byte too."""

NO_KEY = -1
"""The number of a key that no row has."""


def is_null(key: Any) -> bool:
    """A key of several fields is null if one of them is.

    >>> is_null(None), is_null((1, None)), is_null(0)
    (True, True, False)
    """
    return key is None or (isinstance(key, tuple) and any(part is None for part in key))


class ProbeKeys:
    """Keys by number, as they are looked for among the rows of the other side."""

    def __init__(self, index: KeyIndex, codec: KeyCodec) -> None:
        self._index = index
        self._decode = codec.decode
        self._seen = 0
        self._null: list[int] = []

    def of(self, keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The keys, with `NO_KEY` in place of those that are null."""
        encoded = self._index.encoded
        for number in range(self._seen, len(encoded)):
            if _NIL in encoded[number] and is_null(self._decode(encoded[number])):
                self._null.append(number)
        self._seen = len(encoded)
        return np.where(np.isin(keys, self._null), NO_KEY, keys) if self._null else keys
