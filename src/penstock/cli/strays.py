"""Names in a job's storage, or in a file sink's folder, that are not Penstock's. They are passed over: this is for people."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from penstock.connectors.append_log.segment import is_of_a_log
from penstock.connectors.files.writing.names import DATA, OWNER, PUBLISHED, entry_sequence, part_attempt
from penstock.connectors.staging.rows import staged_attempt
from penstock.jobs import paths
from penstock.storage import Storage

_OF_A_SINK = re.compile(r"sinks/[^/]+/published/[0-9]{20}")
_OF_A_FEED = re.compile(r"feeds/[^/]+/[^/]+/(?:[0-9]+/)?(?:empty|index\.json|[0-9a-z-]+\.parquet)")


def stray_names(storage: Storage) -> list[str]:
    """What is not ours, sorted. A folder that is neither a job's storage nor a file sink's has none."""
    ours = _known(storage)
    if ours is None:
        return []
    found = [listed.path for listed in storage.list() if not ours(listed.path)]
    return sorted(found + list(_unlisted(storage)))


def _known(storage: Storage) -> Callable[[str], bool] | None:
    """Which paths are ours in this kind of folder."""
    if storage.exists(paths.JOB):
        return lambda path: paths.is_ours(path) or _of_a_connector(path)
    if storage.exists(OWNER):
        return _of_a_file_sink
    return None


def _of_a_connector(path: str) -> bool:
    if staged_attempt(path) is not None or is_of_a_log(path):
        return True
    return _OF_A_SINK.fullmatch(path) is not None or _OF_A_FEED.fullmatch(path) is not None


def _of_a_file_sink(path: str) -> bool:
    if path == OWNER or entry_sequence(path) is not None:
        return True
    return path.partition("/")[0] in (DATA, PUBLISHED) and part_attempt(path) is not None


def _unlisted(storage: Storage) -> Iterator[str]:
    unlisted = getattr(storage, "unlisted", None)
    return unlisted() if callable(unlisted) else iter(())
