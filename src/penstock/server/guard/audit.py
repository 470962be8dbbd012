"""The audit log: a line of JSON for each request that changes something or is refused; for reads too, if that is wanted."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import msgspec

log = logging.getLogger("penstock.server.audit")


class Audit:
    """Writes to a file that only its user can read, and to the logger `penstock.server.audit`."""

    def __init__(self, file: str | None = None, *, reads: bool = False) -> None:
        self.reads = reads
        self._file = None if file is None else os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, *, method: str, path: str, status: int, caller: str, role: str, peer: str, ms: float) -> None:
        """A request that was answered. Of its path no query is kept, and no body."""
        if method in ("GET", "HEAD") and status not in (401, 403, 421, 429) and not self.reads:
            return
        line: dict[str, Any] = {
            "time_ms": round(time.time() * 1000),
            "caller": caller,
            "role": role,
            "peer": peer,
            "method": method,
            "path": path[:500],
            "status": status,
            "ms": round(ms, 1),
        }
        data = msgspec.json.encode(line)
        if self._file is not None:
            os.write(self._file, data + b"\n")
        log.info("%s", data.decode())

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
