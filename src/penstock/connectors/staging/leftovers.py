"""What failed attempts have left staged, recognised by the attempt in its name."""

from __future__ import annotations

from collections.abc import Callable

from penstock.connectors.protocol import CommitterContext
from penstock.storage import Storage


def leftovers(storage: Storage, folder: str, attempt_of: Callable[[str], str | None], context: CommitterContext) -> list[str]:
    """The files below a folder that attempts wrote whose leftovers may be removed. Names without an attempt are not ours."""
    listed = [(found.path, attempt_of(found.path)) for found in storage.list(folder)]
    return [path for path, attempt in listed if attempt is not None and context.sweepable(attempt)]
