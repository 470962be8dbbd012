"""What happens to a cluster and its storages, and the plan of a campaign: a function of the seed.

| kind | what happens |
|---|---|
| `outage` | the storage refuses everything: input/output errors, closed connections |
| `silence` | it is there, and does nothing: calls hang (local), 503 (S3) |
| `slow`, `lost` | it takes its time; it does what it is asked to and does not say so |
| `stray` | somebody leaves files of their own in it, for good |
| `full` | its disk is full |
| `master`, `worker`, `host`, `executor` | SIGKILL; `host`: a worker and its executors. A supervisor restarts master and worker |
| `freeze-driver`, `freeze-standby` | SIGSTOP, and SIGCONT in the end |
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

LOCAL, S3, CLUSTER = "local", "s3", "cluster"

LENGTHS_S: dict[str, tuple[float, float]] = {
    "outage": (1, 30),
    "silence": (1, 30),
    "slow": (5, 15),
    "lost": (5, 15),
    "stray": (0, 0),
    "full": (3, 15),
    "master": (1, 10),
    "worker": (1, 10),
    "host": (1, 10),
    "executor": (0, 0),
    "freeze-driver": (1, 30),
    "freeze-standby": (1, 30),
}
"""How long a fault lasts, from and to; of what is killed: until its supervisor starts it anew."""

_PARTS = {
    "master": "machines",
    "worker": "machines",
    "host": "machines",
    "freeze-driver": "processes",
    "freeze-standby": "processes",
}

CARDS = (
    *((kind, job) for kind in ("outage", "silence", "slow", "lost", "stray") for job in (LOCAL, S3)),
    ("full", LOCAL),
    *((kind, CLUSTER) for kind in ("master", "worker", "host")),
    *((kind, job) for kind in ("executor", "freeze-driver", "freeze-standby") for job in (LOCAL, S3)),
)


TOGETHER = 0.25
"""How often a fault comes together with the one before."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`job`: whose storage, executor or process it hits; or the cluster's. `after_s`: so long after the last recovery."""

    kind: str
    job: str
    seconds: float
    after_s: float

    def __str__(self) -> str:
        return f"{self.kind} ({self.job}) {self.seconds:.1f} s"

    @property
    def part(self) -> tuple[str, str]:
        """What it breaks. Two faults of one part cannot last at the same time."""
        return self.job, _PARTS.get(self.kind, "executors" if self.kind == "executor" else "storage")


Blow = tuple[Fault, ...]
"""A fault, or two at a time."""


def blows(seed: int, number: int, *, without: frozenset[str] = frozenset()) -> list[Blow]:
    """So many faults. Every kind comes up for each job before any comes up twice."""
    dice = random.Random(seed)
    planned: list[Blow] = []
    for fault in [_drawn(dice, kind, job) for kind, job in islice(_dealt(dice, without), number)]:
        alone = planned and len(planned[-1]) == 1 and planned[-1][0].part != fault.part
        if alone and dice.random() < TOGETHER:
            planned[-1] += (fault,)
        else:
            planned.append((fault,))
    return planned


def _dealt(dice: random.Random, without: frozenset[str]) -> Iterator[tuple[str, str]]:
    while True:
        cards = [card for card in CARDS if card[0] not in without]
        dice.shuffle(cards)
        yield from cards


def _drawn(dice: random.Random, kind: str, job: str) -> Fault:
    return Fault(kind, job, seconds=dice.uniform(*LENGTHS_S[kind]), after_s=dice.uniform(0, 3))
