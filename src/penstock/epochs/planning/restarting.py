"""After a failed epoch: is it tried again, and when? A pure function of what has failed since the last epoch that ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.config import RestartPolicy
from penstock.diagnosis.failures import mark_of, nature_of
from penstock.errors import Nature, PenstockError
from penstock.ids import Milliseconds


@dataclass(frozen=True, slots=True)
class Seen:
    """A failure: which one, and of what kind."""

    mark: str
    nature: Nature


@dataclass(frozen=True, slots=True)
class Again:
    """Try again after a while. `repeated`: the same has been seen, and said, before."""

    delay_ms: Milliseconds
    repeated: bool


@dataclass(frozen=True, slots=True)
class GiveUp:
    because: str


def seen(error: PenstockError) -> Seen:
    return Seen(mark_of(error), nature_of(error))


def after_failures(failures: Sequence[Seen], policy: RestartPolicy, *, skips: bool = False) -> Again | GiveUp:
    """What to do after these failures in a row, the last of which has just happened.

    `skips`: a failed epoch's input is not read again (at most once), so that the same error is of another record.
    """
    last = failures[-1]
    same = sum(failure.mark == last.mark for failure in failures)
    if last.nature == "configuration":
        return GiveUp("trying again would not help")
    if last.nature == "deterministic" and same > 1 and not skips:
        return GiveUp("the same error for the same input twice: trying again would not help")
    delay = policy.delay_ms(len(failures))
    if delay is None:
        return GiveUp(f"gave up after {len(failures)} failures in a row" if len(failures) > 1 else "gave up after a failure")
    return Again(delay, repeated=same > 1)
