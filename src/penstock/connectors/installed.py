"""Which connectors are installed: ours and those of others, found by the entry points of installed packages.

A package declares a connector in its `pyproject.toml`:

    [project.entry-points."penstock.connectors"]
    mail = "penstock_mail:CONNECTOR"

where `CONNECTOR` is a `Connector`. What it needs beyond its package is an extra; a connector whose needs are not met is listed
with what to install.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from penstock.errors import EnvironmentProblemError

GROUP = "penstock.connectors"


@dataclass(frozen=True, slots=True)
class Connector:
    """What a package offers. `sources` and `sinks`: their names, as imported from `module`.

    `needs`: modules that must be importable; `extra`: what to install so that they are, such as `penstock[kafka]`.
    """

    summary: str
    _: KW_ONLY
    module: str
    sources: Sequence[str] = ()
    sinks: Sequence[str] = ()
    needs: Sequence[str] = ()
    extra: str = ""

    @property
    def missing(self) -> list[str]:
        """The modules that it needs, and that are not installed."""
        return [name for name in self.needs if not _is_there(name)]


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledConnector:
    """A connector as it was found. `problem`: why it cannot be used, if it cannot."""

    name: str
    package: str
    connector: Connector | None = field(default=None)
    problem: str = ""


def installed_connectors() -> list[InstalledConnector]:
    """All connectors that installed packages declare, by name."""
    found = []
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        package = entry.dist.name if entry.dist is not None else ""
        try:
            loaded: Any = entry.load()
        except Exception as error:  # others' packages may raise anything
            problem = f"{entry.value} cannot be imported: {type(error).__name__}: {error}"
            found.append(InstalledConnector(name=entry.name, package=package, problem=problem))
            continue
        if not isinstance(loaded, Connector):
            problem = f"{entry.value} is a {type(loaded).__name__}, not a Connector"
            found.append(InstalledConnector(name=entry.name, package=package, problem=problem))
            continue
        problem = f"pip install '{loaded.extra}'" if loaded.missing and loaded.extra else ""
        problem = problem or (f"{', '.join(loaded.missing)} is not installed" if loaded.missing else "")
        found.append(InstalledConnector(name=entry.name, package=package, connector=loaded, problem=problem))
    return found


def needed(module: str, extra: str, what: str) -> ModuleType:
    """A module of an extra; an error that says what to install if it is not there."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise EnvironmentProblemError(
            f"{what} needs {module}, which is not installed", detail=str(error), hint=f"pip install '{extra}'"
        ) from error


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False
