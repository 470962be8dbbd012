"""Snapshots that people operate: savepoints, and the epochs of jobs, read, edited, built, compared, restored.

May import everything below it; `pyspark` is not imported here.
"""

from penstock.snapshots.preflight import Preflight, check

__all__ = ["Preflight", "check"]
