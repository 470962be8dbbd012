"""Where Spark runs, by the name of its master."""

from __future__ import annotations

import os


def default_master() -> str:
    """All cores, and four attempts for each task: plain `local` never tries again."""
    return os.environ.get("PENSTOCK_MASTER") or "local[*,4]"


def is_local(master: str) -> bool:
    """Do all tasks run in the driver's JVM?"""
    return master == "local" or master.startswith("local[")
