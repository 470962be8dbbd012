"""Every path in a job's storage is made here, and parsed here.

A parser gives None for a name that is not ours: an editor's, a file manager's or a network file system's. Such names are passed
over by whoever lists (`penstock.jobs.listing`).

job.json                          what the job is: its uuid, format, key groups
terms/000001.json                 who drives it; the highest is the driver
epochs/0000000001.json            manifest: the commit point of an epoch
epochs/0000000001.done            its sinks have been committed
state/s1/p0/0000000001-<attempt>.delta   and .base
state/imported/<term>-<id>/...    files of a savepoint or of another job's epoch, copied when this one was started from it
pins/<id>.json                    epochs that are being read: their files stay
programs/<hash>.json              which program wrote an epoch
tables/<term>-<n>-<digest>.arrow  a version of a table that a step looks up in
savepoints/<time>-<id>/...        savepoints for which no other place was named; never removed by the job
lineage/<kind>-<id>.json          savepoints, restores and forks, for people
lease.json                        the driver's sign of life, for a standby
take-over.json                    the same, of a process that is taking the job over and has not committed that yet
mirror.json                       in a mirror: of what, and how far
requests/<id>.json, answers/<id>.json    control
status.json                       for people and tools; never read by the engine
metrics/latest.json, 00.json ...  the same: what the job does, and what it did in the last hours
logs/driver.json                  the last lines that the driver has logged
"""

from __future__ import annotations

import re
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
TABLES = "tables"
SAVEPOINTS = "savepoints"
LINEAGE = "lineage"
LEASE = "lease.json"
TAKE_OVER = "take-over.json"
MIRROR = "mirror.json"
METRICS = "metrics"
DRIVER_LOG = "logs/driver.json"
LATEST_METRICS = f"{METRICS}/latest.json"

_STATE_FILE = re.compile(rf"{STATE}(?:/(?!\.)[^/\\\0\n]+)+")


def term(number: Term) -> str:
    return f"{TERMS}/{number:06d}.json"


def manifest(epoch: Epoch) -> str:
    return f"{EPOCHS}/{epoch:010d}.json"


def table(term: Term, number: int, digest: str) -> str:
    return f"{TABLES}/{term:06d}-{number:06d}-{digest}.arrow"


def done(epoch: Epoch) -> str:
    return f"{EPOCHS}/{epoch:010d}.done"


def intent(epoch: Epoch, number: Term) -> str:
    """What an at-most-once epoch is about to read: never read again."""
    return f"{INTENTS}/{epoch:010d}-{number:06d}.json"


def state_file(stage: int, partition: int, epoch: Epoch, attempt: str, kind: str) -> str:
    return f"{STATE}/s{stage}/p{partition}/{epoch:010d}-{attempt}.{kind}"


def is_state_file(path: str) -> bool:
    """Can this be a state file's path? Stored files name them, and what is named is read, copied and removed."""
    return _STATE_FILE.fullmatch(path) is not None


def attempt_of_state_file(path: str) -> str:
    return path.rsplit("/", 1)[-1].split("-", 1)[-1].rsplit(".", 1)[0]


def imported(term: Term, identity: str, name: str) -> str:
    """The copy of a state file of another place, `name` there."""
    return f"{IMPORTED}/{term:06d}-{identity}/{name.removeprefix(f'{STATE}/')}"


def term_of_state_file(path: str) -> Term | None:
    """The term in which a state file was written or imported."""
    if _OWN_STATE_FILE.fullmatch(path) is None:
        return None
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


def metrics_period(number: int) -> str:
    return f"{METRICS}/{number:02d}.json"


def request(identity: str) -> str:
    return f"{REQUESTS}/{identity}.json"


def answer(identity: str) -> str:
    return f"{ANSWERS}/{identity}.json"


# --- parsing ---------------------------------------------------------------------------------------------------------------

_NUMBERED = re.compile(r"(terms|epochs|intents)/([0-9]+)(?:-([0-9]+))?\.(json|done)")
_DIGITS = 19
"""More than any number has: what is longer is no number of ours."""

_OWN_STATE_FILE = re.compile(
    rf"{STATE}/(?:imported/[0-9]+-[^/]+/(?:[^/]+/)*[0-9a-z_][^/]*\.(?:delta|base|parquet)"
    r"|s[0-9]+/p[0-9]+/[0-9]{10,}-[0-9]+-[0-9a-z-]+\.(?:delta|base))"
)
_NAMED = re.compile(
    rf"{PINS}/[0-9a-f]{{32}}\.json"
    rf"|(?:{REQUESTS}|{ANSWERS})/[0-9]{{13,}}-[0-9a-f]{{8}}\.json"
    rf"|{PROGRAMS}/[0-9a-f]{{16}}\.json"
    rf"|{METRICS}/(?:latest|[0-9]{{2}})\.json"
    rf"|{LINEAGE}/(?:savepoint|restore|fork)-[0-9A-Za-z_.@-]+\.json"
    rf"|{SAVEPOINTS}/[^/]+/(?:savepoint\.json|making\.json|{STATE}/[^/]+\.parquet)"
)


def term_of(path: str) -> Term | None:
    """The term of a path below `terms/`."""
    found = _number(path)
    return Term(found) if found is not None and path == term(Term(found)) else None


def epoch_of_manifest(path: str) -> Epoch | None:
    found = _number(path)
    return Epoch(found) if found is not None and path == manifest(Epoch(found)) else None


def epoch_of_done(path: str) -> Epoch | None:
    found = _number(path)
    return Epoch(found) if found is not None and path == done(Epoch(found)) else None


def epoch_of_intent(path: str) -> Epoch | None:
    match = _NUMBERED.fullmatch(path)
    if match is None or match[3] is None or max(len(match[2]), len(match[3])) > _DIGITS:
        return None
    epoch, number = Epoch(int(match[2])), Term(int(match[3]))
    return epoch if path == intent(epoch, number) else None


def is_named(path: str, folder: str) -> bool:
    """A pin, request, answer, program, note of the lineage, or file of a savepoint, below the folder of its kind."""
    return path.startswith(f"{folder}/") and _NAMED.fullmatch(path) is not None


_PARSERS = (term_of, epoch_of_manifest, epoch_of_done, epoch_of_intent, term_of_state_file)


def is_ours(path: str) -> bool:
    """A path that this module makes."""
    return (
        path in (JOB, STATUS, LEASE, TAKE_OVER, MIRROR, DRIVER_LOG)
        or any(parse(path) is not None for parse in _PARSERS)
        or _NAMED.fullmatch(path) is not None
    )


def _number(path: str) -> int | None:
    match = _NUMBERED.fullmatch(path)
    return int(match[2]) if match is not None and match[3] is None and len(match[2]) <= _DIGITS else None
