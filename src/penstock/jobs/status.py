"""`status.json` in a job's storage: what the job does, for people and tools. The engine never reads it."""

from __future__ import annotations

import logging
from typing import Literal

import msgspec

from penstock.errors import CorruptFileError, NotFoundError
from penstock.jobs import paths
from penstock.jobs.left_out import LeftOut
from penstock.storage import Storage
from penstock.storage.documents import LIST_BYTES, decode_json, read_small

log = logging.getLogger("penstock")

EVERY_S = 1.0

Phase = Literal["running", "finished", "stopped", "failed"]

VERSION = 2
"""1 had no `version` and no `state`."""


class Status(msgspec.Struct, frozen=True):
    """A job as its driver last saw it. Counts are of its present run."""

    name: str
    phase: Phase
    host: str
    pid: int
    updated_ms: int
    epoch: int | None = None
    epochs: int = 0
    records_in: int = 0
    records_out: int = 0
    records_per_second: float = 0.0
    epoch_seconds: float | None = None
    watermark_ms: int | None = None
    watermark_lag: dict[str, int | None] = {}
    busy: dict[str, float] = {}
    """The share of the time that each step was busy, in the last seconds in which epochs ran."""
    state_entries: int | None = None
    error: str = ""
    late: int = 0
    skipped: int = 0
    dead_letters: int = 0
    shed: int = 0
    left_out: LeftOut = LeftOut()
    """What is not in the results, since the job began."""
    version: int = 1
    state: str = ""
    """What the driver was doing, as `penstock.epochs.lifecycle` has it."""


def read_status(storage: Storage) -> Status | None:
    """What a job's driver last wrote; None if there is nothing that can be read."""
    try:
        return decode_json(read_small(storage, paths.STATUS, LIST_BYTES), Status, paths.STATUS)
    except (NotFoundError, CorruptFileError):
        return None
