"""What can go wrong, as types.

Every error of Penstock says three things: *what* is wrong, the *detail* (step, function with file:line, record, file), and a
*hint*: what to do about it. Each class is also the builtin a Python programmer would catch.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Literal

Nature = Literal["configuration", "deterministic", "transient", "machine"]
"""What kind of failure an error is; `penstock.diagnosis.failures` tells which is which."""


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """A hint for a name that does not exist; nothing if no known one is like it."""
    found = get_close_matches(wrong, list(known), n=1)
    return f"did you mean {found[0]}?" if found else ""


class PenstockError(Exception):
    """The root of all errors that Penstock raises on purpose."""

    def __init__(self, what: str, *, detail: str = "", hint: str = "", nature: Nature | None = None) -> None:
        super().__init__(what, detail, hint)
        self.what = what
        self.detail = detail
        self.hint = hint
        self.nature = nature

    def __str__(self) -> str:
        lines = [self.what]
        if self.detail:
            lines += [f"  {line}" for line in self.detail.splitlines()]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.detail, self.hint, self.nature))


def _rebuild(cls: type[PenstockError], what: str, detail: str, hint: str, nature: Nature | None) -> PenstockError:
    return cls(what, detail=detail, hint=hint, nature=nature)


class PlanError(PenstockError, ValueError):
    """The program as written cannot be run."""


class ConfigError(PenstockError, ValueError):
    """A setting has a value that makes no sense."""


class UserCodeError(PenstockError, RuntimeError):
    """A function of the user's raised."""


class ReturnedValueError(UserCodeError, TypeError):
    """A function returned one value where it may give any number of records."""


class SourceError(PenstockError, RuntimeError):
    """A source cannot be listed, or a split of it cannot be read."""


class SinkError(PenstockError, RuntimeError):
    """A sink refused to write, prepare or commit."""


class SinkRefusedError(SinkError):
    """A committed epoch's output cannot be published, and no more attempts are made."""


class RepeatedOutputError(SinkError):
    """Going back to an earlier epoch would publish again what some sinks cannot take back."""


class StateError(PenstockError, RuntimeError):
    """State cannot be encoded, decoded, stored or loaded."""


class StateTypeError(StateError, TypeError):
    """A value was written to state that is not of the declared type: it would not be read back as it is."""


class CorruptFileError(StateError):
    """A file that was read back is damaged, incomplete or not the one expected."""


class StorageError(PenstockError, OSError):
    """The storage behind a URI did not do what was asked."""


class AlreadyExistsError(StorageError, FileExistsError):
    """Exclusive create found the object there already."""


class NotFoundError(StorageError, FileNotFoundError):
    """There is no such object."""


class FencedError(PenstockError, RuntimeError):
    """Another driver has taken the job over; this one must stop."""


class DrainedError(PenstockError, RuntimeError):
    """The job was drained: its time has ended, and it cannot go on from there."""


class JobDrivenError(PenstockError, RuntimeError):
    """Another driver runs the job now; a second one would take it over."""


class EpochFailedError(PenstockError, RuntimeError):
    """An epoch could not be completed; nothing of it is visible."""


class LayersLostError(EpochFailedError):
    """Changes of an epoch that is not committed yet are not where the next one runs."""


class DeltaTooLargeError(EpochFailedError):
    """What an epoch changed is too much to be kept until the next checkpoint."""


class ExecutorLostError(EpochFailedError):
    """The engine underneath (a Spark session) is gone and must be started anew."""


class EnvironmentProblemError(PenstockError, EnvironmentError):
    """Java, Spark or Python on this machine are not as needed."""
