"""Keeps the last lines of the driver's log in the job's storage, so that they can be read from elsewhere."""

from __future__ import annotations

import logging
import threading
from collections import deque

import msgspec

from penstock.diagnosis.redaction import redact_text
from penstock.epochs.history import EpochRecord, JobResult
from penstock.errors import FencedError
from penstock.jobs import paths
from penstock.jobs.metrics.kept_log import LINES, LONGEST, KeptLog, LogLine, read_log
from penstock.storage import Storage

EVERY_S = 2.0

_formatter = logging.Formatter()


class LogKeeper(logging.Handler):
    """A `RunListener` that hears what is logged in this process while a job runs: what its loggers let through, nothing more.

    Until its first epoch is committed it writes nothing: the storage may be another's."""

    def __init__(self, storage: Storage) -> None:
        super().__init__()
        self._storage = storage
        self._lines: deque[LogLine] = deque(maxlen=LINES)
        self._new = False
        self._owned = False
        self._due = threading.Event()
        self._over = False
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        text = redact_text(_formatter.format(record))[:LONGEST]
        self._lines.append(LogLine(round(record.created * 1000), record.levelname, record.name, text))
        self._new = True

    def started(self, name: str, storage: str) -> None:
        self._owned = self._over = False
        logging.getLogger().addHandler(self)

    def __call__(self, record: EpochRecord) -> None:
        if not self._owned:
            self._owned = True
            earlier = read_log(self._storage)
            self.acquire()
            try:
                room = LINES - len(self._lines)
                self._lines.extendleft(reversed(earlier[-room:] if room else []))
            finally:
                self.release()
        if self._thread is None and self._new:
            self._thread = threading.Thread(target=self._serve, name="penstock-log", daemon=True)
            self._thread.start()

    def ended(self, result: JobResult | None, error: BaseException | None) -> None:
        logging.getLogger().removeHandler(self)
        thread, self._thread = self._thread, None
        self._over = True
        if thread is not None:
            self._due.set()
            thread.join(5)
            self._due.clear()
        if self._owned and not isinstance(error, FencedError):
            self._write()

    def _serve(self) -> None:
        while not self._over:
            self._write()
            self._due.wait(EVERY_S)

    def _write(self) -> None:
        if not self._new:
            return
        self._new = False
        self.acquire()
        try:
            lines = list(self._lines)
        finally:
            self.release()
        try:
            self._storage.replace(paths.DRIVER_LOG, msgspec.json.encode(KeptLog(lines)), durable=False)
        except OSError:
            self._new = True
