"""A local store of another process, in LMDB, to be read only: by who answers queries beside a job.

Laws:
- Nothing is written, and the job is not waited for: readers of LMDB do not block the writer.
- The directory stays as long as the reader is open: it is leased.
- A view keeps pages from being used again: it is closed soon. What killed readers left is cleared by whoever writes.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import lmdb

from penstock.state.stores.directories import current_directory, take_lease
from penstock.state.stores.lmdb_store import LmdbStore
from penstock.state.stores.lmdb_view import LmdbView
from penstock.state.stores.store import StoreBrokenError, open_stores

MAP_SIZE = 16 << 30


class LmdbReader:
    """The store that is current in the folder of a stage partition. One thread at a time views; any closes views."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._directory: str | None = None
        self._env: lmdb.Environment | None = None
        self._lease = -1
        self._open_views = 0
        self._leaving: list[Callable[[], None]] = []
        self._counting = threading.Lock()

    def view(self) -> LmdbView | None:
        """What is applied there now; None if there is no store, or none that can be read."""
        directory = current_directory(self._folder)
        if directory is None:
            return None
        for store in open_stores():
            if store.path == directory and isinstance(store, LmdbStore):  # by the job, in this process: LMDB opens it once
                self.close()
                return store.view()
        if directory != self._directory:
            self.close()
            self._open(directory)
        for _ in range(2):
            env = self._env
            if env is None:
                return None
            try:
                return self._begin(env)
            except lmdb.MapResizedError:
                self.close()
                self._open(directory)
            except lmdb.Error as error:
                raise StoreBrokenError(f"the local store in {directory} cannot be read", detail=str(error)) from error
        return None

    def close(self) -> None:
        """The environment is closed with its last view."""
        env, lease = self._env, self._lease
        self._env, self._lease, self._directory = None, -1, None
        if env is None:
            return

        def leave() -> None:
            env.close()
            os.close(lease)

        with self._counting:
            if self._open_views:
                self._leaving.append(leave)
                return
        leave()

    def _begin(self, env: lmdb.Environment) -> LmdbView:
        transaction = env.begin()
        try:
            view = LmdbView(transaction, self._ended)
        except BaseException:
            transaction.abort()
            raise
        with self._counting:
            self._open_views += 1
        return view

    def _ended(self) -> None:
        leaving: list[Callable[[], None]] = []
        with self._counting:
            self._open_views -= 1
            if not self._open_views:
                leaving, self._leaving = self._leaving, []
        for leave in leaving:
            leave()

    def _open(self, directory: str) -> None:
        try:
            lease = take_lease(directory)
        except (OSError, StoreBrokenError):
            return  # it was removed just now
        try:
            env = lmdb.open(directory, map_size=MAP_SIZE, readonly=True, readahead=False, max_readers=512, max_spare_txns=0)
        except lmdb.Error:
            os.close(lease)
            return
        self._env, self._lease, self._directory = env, lease, directory
