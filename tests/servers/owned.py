"""A server that a test owns: started by it, and stopped by its process id.

It dies with the process that started it, so that a killed test run leaves no server behind.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if hasattr(os, "fork") else None
_SHOWN = 2000
"""Characters of a log, in an error."""


class ServerFailedError(RuntimeError):
    """A server could be had, and did not start."""


def free_port() -> int:
    """A port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def accepts(port: int) -> bool:
    """Does anybody listen there?"""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class OwnedProcess:
    """A server process with its log. May be started again after it was stopped or killed."""

    def __init__(self, command: Sequence[str], log: Path, *, environment: Mapping[str, str] | None = None) -> None:
        self._command = list(command)
        self._log = log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server has not been started"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, ready: Callable[[], bool], *, within: float = 90.0) -> None:
        """Start it, and wait until `ready`."""
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        deadline = time.monotonic() + within
        while not ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise ServerFailedError(f"{self._command[0]} did not start:\n{self.log_end()}")
            time.sleep(0.05)

    def stop(self, *, within: float = 20.0) -> None:
        """Ask it to end; kill it if it does not."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(within)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def kill(self) -> None:
        """SIGKILL, to it and what it has started."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def freeze(self) -> None:
        """SIGSTOP: it is there and does not answer."""
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def log_end(self) -> str:
        return self._log.read_text(errors="replace")[-_SHOWN:] if self._log.exists() else ""


def _die_with_parent() -> None:
    if _LIBC is not None and hasattr(_LIBC, "prctl"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
