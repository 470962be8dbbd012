"""What kind of failure an error is, and which failure it is: what the decision about a restart rests on. Pure.

| nature | what it is | examples |
|---|---|---|
| `configuration` | the program or its settings are wrong | a `ConfigError`, a missing folder, a changed `watch=` |
| `deterministic` | the same input gives the same error | `TypeError`, `KeyError`, `ValueError`, a line that is not JSON |
| `transient` | it may work the next time | `OSError`, timeouts, lost connections, errors that are not known |
| `machine` | what runs the job is in trouble | a lost worker, the storage |
"""

from __future__ import annotations

import re
from pickle import PickleError

import msgspec

from penstock.diagnosis.tracebacks import chain
from penstock.errors import (
    ConfigError,
    EnvironmentProblemError,
    EpochFailedError,
    FencedError,
    Nature,
    PenstockError,
    PlanError,
    SinkError,
    SourceError,
    StateError,
    StorageError,
    UserCodeError,
)

NATURES: dict[type[PenstockError], Nature] = {
    ConfigError: "configuration",
    PlanError: "configuration",
    EnvironmentProblemError: "configuration",
    EpochFailedError: "machine",
    FencedError: "machine",
    StorageError: "machine",
    UserCodeError: "deterministic",
    SourceError: "deterministic",
    SinkError: "deterministic",
    StateError: "deterministic",
}
"""What our own errors are, unless they say otherwise or were caused by something else."""

TRANSIENT = (OSError, EOFError, MemoryError)
"""Timeouts and lost connections are `OSError`s."""

DETERMINISTIC = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    NameError,
    ArithmeticError,
    AssertionError,
    NotImplementedError,
    RecursionError,
    ImportError,
    SyntaxError,
    StopIteration,
    PickleError,
    msgspec.MsgspecError,
)
"""Most parse errors are `ValueError`s; so are Arrow's."""

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


def nature_of(error: BaseException) -> Nature:
    """What kind of failure it is. One that was caused by a lost connection, however indirectly, is transient."""
    if isinstance(error, PenstockError) and error.nature is not None:
        return error.nature
    ours = next((NATURES[kind] for kind in type(error).__mro__ if kind in NATURES), None)
    if ours in ("configuration", "machine"):
        return ours
    causes = [cause for cause in chain(error) if not isinstance(cause, PenstockError)]
    if any(isinstance(cause, TRANSIENT) for cause in causes):
        return "transient"
    if causes and not isinstance(causes[0], DETERMINISTIC):
        return "transient"
    return ours or ("deterministic" if causes else "machine")


def mark_of(error: BaseException) -> str:
    """Which failure it is: two with the same mark are of the same step, function, error and record. Addresses differ."""
    told = f"{error.what}\n{error.detail}" if isinstance(error, PenstockError) else str(error)
    return f"{type(error).__name__}\n{_ADDRESS.sub('0x', told)}"
