"""Writing `status.json` while a job runs: a listener like any other. The engine never reads it."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time

import msgspec

from penstock.diagnosis.redaction import redact_text
from penstock.epochs.history import EpochRecord, JobResult
from penstock.epochs.lifecycle import OVER, State
from penstock.epochs.rates import RecentBusy, RecentRate
from penstock.errors import FencedError
from penstock.jobs import paths
from penstock.jobs.status import EVERY_S, VERSION, Phase, Status
from penstock.storage import Storage

log = logging.getLogger("penstock")


class StatusWriter:
    """A `RunListener` that writes the run's status: at most once a second, with every state of its driver, and at the end.

    Not at the start: until its first epoch is committed a run may yet find out that the storage is not its own.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage = storage
        self._written = 0.0
        self._rate, self._busy = RecentRate(), RecentBusy()
        self._writing = threading.Lock()
        """Epochs come from the thread that commits, states from the loop."""
        self._status = self._new(name)

    def _new(self, name: str) -> Status:
        return Status(name, "running", socket.gethostname(), os.getpid(), 0, version=VERSION)

    def started(self, name: str, storage: str) -> None:
        """A standby may run the job several times."""
        self._written, self._rate, self._busy = 0.0, RecentRate(), RecentBusy()
        self._status = self._new(self._status.name)

    def entered(self, state: State) -> None:
        with self._writing:
            self._status = msgspec.structs.replace(self._status, state=state)
            if self._written and state not in OVER:
                self._write()

    def __call__(self, record: EpochRecord) -> None:
        with self._writing:
            self._add(record)
            if time.monotonic() - self._written >= EVERY_S:
                self._write()

    def _add(self, record: EpochRecord) -> None:
        status = self._status
        self._rate.add(time.monotonic(), record.records_in, record.seconds)
        self._busy.add(record.run_seconds, record.busy)
        self._status = msgspec.structs.replace(
            status,
            epoch=record.epoch,
            epochs=status.epochs + 1,
            records_in=status.records_in + record.records_in,
            records_out=status.records_out + record.records_out,
            epoch_seconds=round(record.seconds, 4),
            watermark_ms=record.watermark_ms,
            watermark_lag=record.watermark_lag,
            state_entries=record.state_entries,
            late=status.late + record.late,
            skipped=status.skipped + record.skipped,
            dead_letters=status.dead_letters + record.dead_letters,
            shed=status.shed + record.shed,
            left_out=record.left_out,
        )

    def ended(self, result: JobResult | None, error: BaseException | None) -> None:
        if result is None and (isinstance(error, FencedError) or not self._written):
            return
        phase: Phase = "failed" if result is None else "finished" if result.finished else "stopped"
        shown = "" if error is None else redact_text(str(error).partition("\n")[0]) or type(error).__name__
        self._status = msgspec.structs.replace(self._status, phase=phase, error=shown)
        if result is not None:
            self._status = msgspec.structs.replace(self._status, shed=result.shed, left_out=result.left_out)
        self._write()

    def _write(self) -> None:
        now = time.monotonic()
        rate = self._rate.at(now)
        self._status = msgspec.structs.replace(
            self._status,
            updated_ms=round(time.time() * 1000),
            records_per_second=round(rate, 1),
            busy=self._busy.shares(),
        )
        self._written = now
        try:
            self._storage.replace(paths.STATUS, msgspec.json.encode(self._status), durable=False)
        except OSError as error:
            log.debug("status.json was not written: %s", error)
