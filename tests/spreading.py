"""Which tests share a worker when they are spread over several (`pytest -n 3`), and which are first.

- Tests on the Spark session share one JVM: one group. So do those on a server that a fixture starts (`tests/servers/`).
- Tests with a fixture of their module's are a group, so that it is made once.
- All others are spread one by one. Those that take long are first, so that none is left over at the end.

Workers collect the tests, so they know the groups; the process that hands tests out reads them from a file. (pytest-xdist has
groups of its own, `--dist loadgroup`; version 3.8 ignores them without a word under pytest 9.2.)
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.properties import is_property
from tests.servers.fixtures import SERVERS

SESSION = "spark"
"""The fixture: the Spark session of this process."""


def spread(items: list[pytest.Item], file: Path) -> None:
    """In a worker: put the tests in order, and write their groups. All workers write the same."""
    items.sort(key=_turn)
    groups = {item.nodeid: group for item in items if (group := group_of(item)) is not None}
    written = file.with_name(f"{file.name}.{os.getpid()}")
    written.write_text(json.dumps(groups))
    written.rename(file)


class Spread(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out groups as a whole and other tests one by one, in the order of the workers."""

    def __init__(self, config: pytest.Config, log: Any, file: Path) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._file = file
        self._groups: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._groups is None:  # all workers have collected by now
            if not self._file.exists():
                raise pytest.UsageError("the workers could not collect the tests: `pytest --collect-only` says why")
            self._groups = json.loads(self._file.read_text())
        return self._groups.get(nodeid, nodeid)


def group_of(item: pytest.Item) -> str | None:
    names = getattr(item, "fixturenames", ())
    for shared in (SESSION, *SERVERS):
        if shared in names:
            return shared
    if isinstance(item, pytest.Function):
        for definitions in item._fixtureinfo.name2fixturedefs.values():
            used = definitions[-1]
            if used.scope == "module" and used.func.__module__ == item.module.__name__:
                return str(item.module.__name__)
    return None


def _turn(item: pytest.Item) -> int:
    if {SESSION, *SERVERS} & set(getattr(item, "fixturenames", ())):
        return 0
    if item.get_closest_marker("spark") or item.get_closest_marker("slow"):
        return 1
    return 2 if is_property(item) else 3
