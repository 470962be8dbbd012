"""Stops in the user's function: before a record is processed, and where it raised.

Laws:
- The debugger stops in the user's own frames: those of Penstock are stepped over, unless one goes up the stack.
- `continue` goes on to the end of the epoch, or to a breakpoint that was set meanwhile. `quit` ends the replay.
"""

from __future__ import annotations

import bdb
import os
import pdb  # noqa: T100 - this is what it is for
import sys
import sysconfig
from collections.abc import Callable
from types import FrameType
from typing import IO, Any, TypeVar

from penstock.snapshots.replay.result import NO_KEY, Event

R = TypeVar("R")


class Quit(BaseException):
    """The user has had enough. No function catches this."""


class Debugger:
    """Stops once, in the call with the number `at` or the first after it; and after an error."""

    def __init__(self, *, at: int = 1, stdin: IO[str] | None = None, stdout: IO[str] | None = None) -> None:
        self.stopped = False
        self._at = at
        self._stdin = stdin
        self._stdout = stdout
        self._pdb: _Pdb | None = None

    def wants(self, number: int) -> bool:
        """Whether to stop in this call of the step's function."""
        return not self.stopped and number >= self._at

    def call(self, step: str, action: Callable[[], R], event: Event | None) -> R:
        """Do something and stop at the first line of the user's."""
        debugger = self._made()
        debugger.banner = _banner(step, event)
        debugger.reset()
        sys.settrace(debugger.trace_dispatch)
        try:
            result = action()
        except bdb.BdbQuit:
            raise Quit from None
        finally:
            self.stopped = debugger.stopped
            if not debugger.get_all_breaks():
                sys.settrace(None)
        if debugger.quit_asked:
            raise Quit
        return result

    def after_error(self, error: BaseException) -> None:
        """Look at the frames of an error."""
        sys.settrace(None)
        cause = error.__cause__ if error.__cause__ is not None else error
        if isinstance(cause, bdb.BdbQuit):
            raise Quit
        if cause.__traceback__ is None:
            return
        debugger = self._made()
        debugger.reset()
        debugger.message(f"\n{error}\n")
        debugger.stopped = self.stopped = True
        debugger.interaction(None, cause.__traceback__)
        if debugger.quit_asked:
            raise Quit

    def close(self) -> None:
        sys.settrace(None)

    def _made(self) -> _Pdb:
        if self._pdb is None:
            self._pdb = _Pdb(self._stdin, self._stdout)
        return self._pdb


class _Pdb(pdb.Pdb):
    def __init__(self, stdin: IO[str] | None, stdout: IO[str] | None) -> None:
        super().__init__(skip=["penstock.*"], nosigint=True, stdin=stdin, stdout=stdout)
        self.banner = ""
        self.stopped = False
        self.quit_asked = False

    def user_call(self, frame: FrameType, argument_list: Any) -> None:
        if self.stopped:
            super().user_call(frame, argument_list)

    def user_line(self, frame: FrameType) -> None:
        if not self.stopped:
            if not _own(frame):
                return
            self.stopped = True
            self.message(self.banner)
        super().user_line(frame)

    def user_return(self, frame: FrameType, return_value: Any) -> None:
        if self.stopped:
            super().user_return(frame, return_value)

    def do_quit(self, arg: str) -> bool | None:
        self.quit_asked = True
        return super().do_quit(arg)

    do_q = do_exit = do_quit

    def do_EOF(self, arg: str) -> bool | None:  # noqa: N802 - pdb's name
        self.quit_asked = True
        return super().do_EOF(arg)


def _own(frame: FrameType) -> bool:
    """Is it a frame of the user's, and not of what Penstock calls on the way there?"""
    file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
    return not file.startswith(("<frozen", "<string>", *_LIBRARY)) and module.partition(".")[0] not in _BELOW


_LIBRARY = (sysconfig.get_path("stdlib") + os.sep,)
_BELOW = frozenset(("penstock", "numpy", "pyarrow", "msgspec", "lmdb", "cloudpickle"))


def _banner(step: str, event: Event | None) -> str:
    lines = [f"step {step!r}"]
    if event is not None:
        lines[0] += f", {event.kind} #{event.number} of epoch {event.epoch}, partition {event.partition}"
        if event.key is not NO_KEY:
            lines.append(f"key {event.key!r}")
        if event.kind != "batch":
            lines.append(f"{event.kind} {event.value!r:.1000}")
        lines.append(f"timestamp {event.timestamp_ms}, watermark {event.watermark_ms}")
        lines += [f"state {name} = {value!r:.500}" for name, value in (event.before or {}).items()]
    return "\n".join(["", *lines, ""])
