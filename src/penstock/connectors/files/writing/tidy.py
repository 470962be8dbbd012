"""Copies of published files below `published/`, for people who just list: links on a local disk.

A listing is not atomic. When output is taken back the old copies go first, and then the new ones come: whoever lists meanwhile
sees too little, never the old and the new together.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable

from penstock.connectors.files.writing.names import DATA, PUBLISHED, part_attempt
from penstock.storage import LocalStorage, Storage

_LOGGER = logging.getLogger(__name__)


def show(storage: Storage, paths: Iterable[str]) -> None:
    """Copy data files. One that cannot be copied is no reason to fail: it is published, only the convenience is missing."""
    for path in paths:
        copy = _copy_of(path)
        try:
            if isinstance(storage, LocalStorage):
                _link(os.path.join(storage.root, path), os.path.join(storage.root, copy))
            elif not storage.exists(copy):
                with storage.open(path) as source, storage.writer(copy) as target:
                    shutil.copyfileobj(source, target, 1 << 20)
        except OSError as error:
            _LOGGER.warning("%s could not be shown as %s: %s", path, copy, error)


def show_only(storage: Storage, paths: Iterable[str]) -> None:
    """Make the copies those of these data files, and no others."""
    wanted = {_copy_of(path): path for path in paths}
    there = {listed.path for listed in storage.list(PUBLISHED) if part_attempt(listed.path) is not None}
    storage.delete(sorted(there - set(wanted)))
    show(storage, [path for copy, path in wanted.items() if copy not in there])


def _copy_of(path: str) -> str:
    return PUBLISHED + path.removeprefix(DATA)


def _link(source: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        pass
