"""An object that is being written: it appears when it is kept, and not at all when it is abandoned."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import BinaryIO

from penstock.storage.protocol import Storage


class PendingObject:
    """`Storage.writer` for those who cannot write in one block."""

    def __init__(self, storage: Storage, path: str) -> None:
        self.path = path
        self._stack = ExitStack()
        self.file: BinaryIO = self._stack.enter_context(storage.writer(path))

    def keep(self) -> None:
        self._stack.close()

    def abandon(self) -> None:
        with suppress(_AbandonedError):
            self._stack.__exit__(_AbandonedError, _AbandonedError(), None)


class _AbandonedError(Exception):
    """Raised into the storage's writer."""
