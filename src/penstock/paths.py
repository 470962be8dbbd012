"""Every path in a job's storage is made here.

job.json                          what the job is: its uuid, format, key groups
terms/000001.json                 who drives it; the highest is the driver
epochs/0000000001.json            manifest: the commit point of an epoch
epochs/0000000001.done            its sinks have been committed
state/s1/p0/0000000001-<attempt>.delta   and .base
state/imported/<term>-<id>/...    files of a savepoint or of another job's epoch, copied when this one was started from it
pins/<id>.json                    epochs that somebody reads: their files stay
programs/<hash>.json              which program wrote an epoch
savepoints/<time>-<id>/...        savepoints for which no other place was named; never removed by the job
lineage/<kind>-<id>.json          savepoints, restores and forks, for people
lease.json                        the driver's sign of life, for a standby
mirror.json                       in a mirror: of what, and how far
requests/<id>.json, answers/<id>.json    control
status.json                       for people and tools; never read by the engine
"""

from __future__ import annotations

from datetime import datetime

from penstock.ids import Epoch, Term

JOB = "job.json"
TERMS = "terms"
EPOCHS = "epochs"
STATE = "state"
REQUESTS = "requests"
ANSWERS = "answers"
STATUS = "status.json"
INTENTS = "intents"
IMPORTED = f"{STATE}/imported"
PINS = "pins"
PROGRAMS = "programs"
SAVEPOINTS = "savepoints"
LINEAGE = "lineage"
LEASE = "lease.json"
MIRROR = "mirror.json"


def term(number: Term) -> str:
    return f"{TERMS}/{number:06d}.json"


def manifest(epoch: Epoch) -> str:
    return f"{EPOCHS}/{epoch:010d}.json"


def done(epoch: Epoch) -> str:
    return f"{EPOCHS}/{epoch:010d}.done"


def intent(epoch: Epoch, number: Term) -> str:
    """What an at-most-once epoch is about to read: never read again."""
    return f"{INTENTS}/{epoch:010d}-{number:06d}.json"


def state_file(stage: int, partition: int, epoch: Epoch, attempt: str, kind: str) -> str:
    return f"{STATE}/s{stage}/p{partition}/{epoch:010d}-{attempt}.{kind}"


def attempt_of_state_file(path: str) -> str:
    return path.rsplit("/", 1)[-1].split("-", 1)[-1].rsplit(".", 1)[0]


def imported(term: Term, identity: str, name: str) -> str:
    """The copy of a state file of another place, `name` there."""
    return f"{IMPORTED}/{term:06d}-{identity}/{name.removeprefix(f'{STATE}/')}"


def term_of_state_file(path: str) -> Term:
    """The term in which a state file was written or imported; ValueError for what is none."""
    if path.startswith(f"{IMPORTED}/"):
        return Term(int(path.removeprefix(f"{IMPORTED}/").split("-", 1)[0]))
    return Term(int(attempt_of_state_file(path).split("-", 1)[0]))


def pin(identity: str) -> str:
    return f"{PINS}/{identity}.json"


def program(digest: str) -> str:
    return f"{PROGRAMS}/{digest}.json"


def savepoint(made: datetime, identity: str) -> str:
    return f"{SAVEPOINTS}/{made:%Y%m%d-%H%M%S}-{identity[:8]}"


def lineage(kind: str, identity: str) -> str:
    return f"{LINEAGE}/{kind}-{identity}.json"


def request(identity: str) -> str:
    return f"{REQUESTS}/{identity}.json"


def answer(identity: str) -> str:
    return f"{ANSWERS}/{identity}.json"


def epoch_number(path: str) -> Epoch:
    """The epoch of a manifest's or a done mark's path."""
    return Epoch(int(path.rsplit("/", 1)[-1].split(".", 1)[0].split("-", 1)[0]))
