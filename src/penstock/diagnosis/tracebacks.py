"""Tracebacks as a user needs them: the frames of their own code, without those of Penstock between them."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import ParamSpec, TypeVar

from penstock.errors import PenstockError, UserCodeError

P = ParamSpec("P")
R = TypeVar("R")

TRACE = "PENSTOCK_TRACE"
"""The environment variable that has whole tracebacks shown; so does `--trace`."""

_HERE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_TESTING = os.path.join(_HERE, "testing", "")
_LIBRARIES = tuple(os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def whole_tracebacks() -> bool:
    return os.environ.get(TRACE, "") not in ("", "0")


@contextlib.contextmanager
def showing_whole(wanted: bool) -> Iterator[None]:
    """Whole tracebacks for a while, if they are wanted; otherwise as the environment says."""
    before = os.environ.get(TRACE)
    if wanted:
        os.environ[TRACE] = "1"
    try:
        yield
    finally:
        if wanted:
            os.environ.pop(TRACE)
            if before is not None:
                os.environ[TRACE] = before


def is_ours(filename: str) -> bool:
    """Is a file of Penstock's, and not one that plays a person's part in tests?"""
    return filename.startswith(_HERE) and not filename.startswith(_TESTING)


def _is_users(frame: FrameType) -> bool:
    """Is it a frame of the user's own code: neither ours nor a library's? Generated code belongs to its module."""
    filename, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
    if filename.startswith("<"):
        return not filename.startswith("<frozen ") and module.partition(".")[0] != "penstock"
    compiled_from = str(frame.f_globals.get("__file__") or "")  # an extension module knows its sources by relative paths
    return not is_ours(filename) and not filename.startswith(_LIBRARIES) and not compiled_from.startswith(_LIBRARIES)


def calling_line() -> str:
    """file:line of the user's own code that called ours; nothing if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_users(frame):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def innermost(error: BaseException) -> str:
    """file:line of the innermost frame that is not ours, if there is one."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_ours(frame.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def folded(error: BaseException) -> str:
    """The traceback of what a function raised, its own frames only; nothing if it has none.

    Nor of an error that a user's function need not have raised (a source cannot be read, say), unless code of theirs was running.
    """
    if not isinstance(error, UserCodeError) and not any(map(_ran_users_code, chain(error))):
        return ""
    raised = error.__cause__ or error
    told = traceback.TracebackException.from_exception(raised, compact=True)
    left_out = len(traceback.extract_tb(error.__traceback__)) if raised is not error else 0
    kept = 0
    at: traceback.TracebackException | None = told
    while at is not None:
        frames = [frame for frame in at.stack if not is_ours(frame.filename)]
        left_out += len(at.stack) - len(frames)
        kept += len(frames)
        at.stack = traceback.StackSummary.from_list(frames)
        at = at.__cause__ or at.__context__
    if not kept:
        return ""
    return "".join(told.format()) + f"… {left_out} frames of penstock (--trace or {TRACE}=1 shows them)"


# --- what leaves the engine ------------------------------------------------------------------------------------------------


def folding(run: Callable[P, R]) -> Callable[P, R]:
    """A function of the API whose errors show the user's own frames, unless whole tracebacks are wanted."""

    @functools.wraps(run)
    def folded_run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return run(*args, **kwargs)
        except PenstockError as error:
            if not whole_tracebacks():
                fold(error)
            raise  # a bare raise leaves the traceback as it is

    return folded_run


def fold(error: PenstockError) -> None:
    """Keep the user's own frames, and as the cause the user's own exception, if there is one.

    What else the error was raised from is not printed, but debuggers find it: it stays `error.__context__`.
    """
    error.__traceback__ = _only(error.__traceback__, _is_users)
    causes = list(chain(error))[1:]
    if causes and error.__context__ is None:
        error.__context__ = causes[0]
    own = next(filter(_ran_users_code, causes), None)
    if own is not None:
        for cause in chain(own):
            cause.__traceback__ = _only(cause.__traceback__, lambda frame: not is_ours(frame.f_code.co_filename))
    error.__cause__ = own  # this also suppresses the context


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and so on."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)


def _ran_users_code(error: BaseException) -> bool:
    return any(_is_users(frame) for frame, _ in traceback.walk_tb(error.__traceback__))


def _only(trace: TracebackType | None, wanted: Callable[[FrameType], bool]) -> TracebackType | None:
    """The traceback without the frames that are not wanted."""
    kept: list[TracebackType] = []
    while trace is not None:
        kept += [trace] if wanted(trace.tb_frame) else []
        trace = trace.tb_next
    made: TracebackType | None = None
    for part in reversed(kept):
        made = TracebackType(made, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return made
