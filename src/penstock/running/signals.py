"""Ctrl-C and SIGTERM while a job runs.

    running ── Ctrl-C, SIGTERM ──→ finishes its epoch, exits with 0
                                      │ Ctrl-C
                                      ↓
                                   stops at once, exits with 130 ── Ctrl-C ──→ the process is ended on the spot

A stop that takes too long ends likewise, with 143: see `stop_deadline`.

A handler may run in the middle of a call to the JVM or of a write to the screen: the first signal only leaves a note, and what is
said here is written to the file descriptor.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

from penstock.epochs.loop import EpochLoop

INTERRUPTED = 130
"""What shells call the end of a program by Ctrl-C."""

TERMINATED = 143
"""What shells call the end of a program by SIGTERM."""

NOTICE = "stopping after this epoch; Ctrl-C again stops at once"
AT_ONCE = "stopped at once; what was committed stays committed"

_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}

_LOGGED_BY = ("", "py4j.java_gateway", "py4j.clientserver")


class Interrupted(SystemExit, KeyboardInterrupt):
    """The job is to stop at once. A program that does not catch it ends with exit code 130 and no traceback."""


class StopSignals:
    """Turns signals into requests to the loop that runs. `stopping` and `at_once` are called in the handler, each once."""

    def __init__(self, stopping: Callable[[], None], at_once: Callable[[], None]) -> None:
        self.asked = ""
        """By what the job was asked to stop."""
        self._stopping = stopping
        self._at_once = at_once
        self._interrupted = False
        self._overdue = ""
        self._loop: EpochLoop | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._stop) for number in _NAMES}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def follow(self, loop: EpochLoop) -> None:
        """From now on it is this loop that is stopped."""
        self._loop = loop
        if self.asked:
            loop.request_stop()

    @property
    def loop(self) -> EpochLoop | None:
        """The one that runs."""
        return self._loop

    def interrupt(self, because: str) -> None:
        """Stop at once, whatever the main thread waits in. From another thread; only while signals are handled."""
        if self._before and not self._interrupted:
            self._overdue = because
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def end(self, because: str) -> None:
        """End the process on the spot. From another thread; only while signals are handled."""
        if self._before:
            say(f"the process exits: {because}\n")
            os._exit(TERMINATED)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self._overdue and not self._interrupted:
            self._interrupted = True
            _say_nothing_of_interrupts()
            say(f"{AT_ONCE}: {self._overdue}\n")
            raise Interrupted(TERMINATED)
        if self._interrupted:
            os._exit(INTERRUPTED)
        if self.asked and number == signal.SIGINT:
            self._interrupted = True
            _say_nothing_of_interrupts()
            self._at_once()
            raise Interrupted(INTERRUPTED)
        if not self.asked:
            self.asked = _NAMES[signal.Signals(number)]
            if self._loop is not None:
                self._loop.request_stop()
            self._stopping()


def say(text: str) -> None:
    """Write to the terminal's current line, which is cleared first; what is not a terminal gets the plain text."""
    data = f"\r\x1b[K{text}" if os.isatty(2) else text
    try:
        os.write(2, data.encode())
    except OSError:
        pass


def _say_nothing_of_interrupts() -> None:
    for name in _LOGGED_BY:
        logging.getLogger(name).addFilter(_not_of_interrupts)


def _not_of_interrupts(record: logging.LogRecord) -> bool:
    """py4j logs, with its traceback, every interrupt that comes while it waits for the JVM."""
    error = record.exc_info[1] if record.exc_info else None
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is None
