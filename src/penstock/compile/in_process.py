"""Running a user's program in this process, with options from outside.

    run_program(path, arguments, options) ──→ the program makes a StreamEnvironment ──→ which takes RunOptions.current()

Laws:
- `StreamEnvironment.__init__` is the one place that asks for the current options. The environment keeps them: it may be executed
  in another thread.
- Options are those of the innermost program that this thread runs. Other threads have none, nor has what runs inside a job
  (`StreamEnvironment.execute`) or at a program's `execute()` (`within`).
- `within` runs a program up to its `execute()` and no further. What is done there is done inside the program: its `__main__` is
  the program's, and files that it holds open are still there.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from penstock.config import JobConfig
from penstock.diagnosis.invocation import UNATTENDED, Invocation
from penstock.errors import ConfigError, PlanError
from penstock.plan.nodes import Graph

T = TypeVar("T")


class Planned(Protocol):
    """A program that has come to its `execute()`: a `StreamEnvironment`."""

    @property
    def graph(self) -> Graph: ...

    @property
    def config(self) -> JobConfig: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How a program is run from outside. `settings` win over the program's own; `listeners` are called like those of `execute`;
    `instead` is called with the environment instead of running it."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    listeners: tuple[Callable[[Any], None], ...] = ()
    invocation: Invocation = UNATTENDED
    instead: Callable[[Any], Any] | None = None

    @staticmethod
    def current() -> RunOptions:
        """Those of the program that this thread runs."""
        return _current.get()


NONE = RunOptions()
"""Of a program that runs itself."""

_current: ContextVar[RunOptions] = ContextVar("penstock_run_options", default=NONE)


@contextlib.contextmanager
def applied(options: RunOptions) -> Iterator[None]:
    """Environments that this thread makes in the block take these options."""
    token = _current.set(options)
    try:
        yield
    finally:
        _current.reset(token)


def run_program(path: str, arguments: list[str], options: RunOptions, module: str | None = None) -> None:
    """Execute a file as `__main__`, with its folder on the path and its own arguments; or a module, as `python -m` does."""
    if module is None and not os.path.isfile(path):
        raise ConfigError(f"there is no program {path}", hint="give the path of a Python file")
    before = sys.argv, list(sys.path)
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.getcwd() if module is not None else os.path.dirname(os.path.abspath(path)))
    try:
        with applied(options):
            if module is not None:
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv, sys.path[:] = before


class _Reached(BaseException, Generic[T]):
    """The program has come to its execute(): the rest of it would wait for results in vain. No program catches this."""

    def __init__(self, done: T | None, error: BaseException | None) -> None:
        self.done = done
        self.error = error


def within(
    action: Callable[[Any], T],
    path: str,
    arguments: list[str],
    *,
    module: str | None = None,
    folder: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> T:
    """Run a program up to its `execute()`; there do something with its environment, instead of running it."""

    def reached(env: Any) -> None:
        try:
            with applied(NONE):
                done = action(env)
        except BaseException as error:
            raise _Reached[T](None, error) from None
        raise _Reached(done, None)

    path = os.path.abspath(path)
    try:
        with _working_in(folder):
            run_program(path, arguments, RunOptions(settings=settings or {}, instead=reached), module)
    except _Reached as caught:
        if caught.error is not None:
            raise caught.error from None
        return caught.done  # type: ignore[return-value]
    raise PlanError(f"{path} ended without executing anything", hint="end the program with env.execute()")


@contextlib.contextmanager
def _working_in(folder: str | None) -> Iterator[None]:
    if not folder or not os.path.isdir(folder):
        yield
        return
    with contextlib.chdir(folder):
        yield
