"""A terminal of its own for a program: what a person types, Ctrl-C among it, reaches the whole foreground process group."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.torture.processes import kill_session

_MAIN = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"

PATIENCE_S = 180.0


class Terminal:
    """A program on a pty. `text` is what it has shown so far."""

    def __init__(self, command: list[str], cwd: Path, environment: Mapping[str, str] | None = None) -> None:
        self._screen, side = pty.openpty()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, *command],
                stdin=side,
                stdout=side,
                stderr=side,
                cwd=cwd,
                env={**os.environ, "COLUMNS": "200", "SPARK_LOCAL_IP": "127.0.0.1", **(environment or {})},
                start_new_session=True,
            )
        finally:
            os.close(side)
        self.text = ""

    def press_ctrl_c(self) -> None:
        os.write(self._screen, b"\x03")

    def until(self, happened: Callable[[], bool], what: str) -> None:
        """Read the screen until something has happened."""
        end = time.monotonic() + PATIENCE_S
        while not happened():
            assert self.process.poll() is None, f"the program ended before {what}:\n{self.text}"
            assert time.monotonic() < end, f"waited in vain: {what}\n{self.text}"
            self._read(0.1)

    def wait(self) -> int:
        """The exit code; the rest of what it shows is in `text`."""
        end = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < end, f"the program does not end\n{self.text}"
            self._read(0.1)
        while self._read(0.2):
            pass
        return self.process.returncode

    def close(self) -> None:
        kill_session(self.process.pid)
        self.process.wait()
        os.close(self._screen)

    def group(self) -> dict[int, str]:
        """The processes of the foreground group, with their command lines."""
        return {pid: line for pid, line in self.session().items() if os.getpgid(pid) == self.process.pid}

    def session(self) -> dict[int, str]:
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    if os.getsid(int(folder.name)) == self.process.pid and (line := (folder / "cmdline").read_bytes()):
                        found[int(folder.name)] = line.replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
        return found

    def _read(self, timeout: float) -> bool:
        if not select.select([self._screen], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self._screen, 65536)
        except OSError:  # nobody has the other side open any more
            return False
        self.text += data.decode(errors="replace")
        return bool(data)
