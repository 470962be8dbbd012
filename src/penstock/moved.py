"""Modules that pages and examples have shown, and that have moved: their old paths work for one release, with a warning.

At each old path is a module of two lines that forwards. This table is all that they know.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

MOVED = {
    "penstock.cli.progress": "penstock.cli.screen.progress",
    "penstock.connectors.files.read_output": "penstock.connectors.files.reading.read_output",
    "penstock.epochs.control": "penstock.jobs.requests",
    "penstock.state.codecs": "penstock.state.encoding.codecs",
    "penstock.state.layout": "penstock.state.entries.layout",
    "penstock.state.shelves": "penstock.state.stores.store_registry",
    "penstock.state.store": "penstock.state.stores.store",
}


def forward(old: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module that has moved."""
    new = MOVED[old]

    def forwarded(name: str) -> Any:
        if name.startswith("__"):  # asked for by the import system, which does not mean the module that is there now
            raise AttributeError(f"module {old!r} has no attribute {name!r}")
        value = getattr(import_module(new), name)
        warnings.warn(f"{old} has moved: import {name} from {new}", DeprecationWarning, stacklevel=2)
        return value

    return forwarded
