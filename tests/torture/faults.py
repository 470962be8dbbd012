"""What is done to a driver, and the plan of a campaign: a function of the seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

DRIVER_POINTS = {
    "source:planned": 6,
    "epoch:submit": 6,
    "epoch:ran": 6,
    "manifest:before": 6,
    "manifest:after": 6,
    "sink:committed": 6,
    "done:before": 6,
    "retention:retired": 3,
    "half-written:json": 6,
    "recovery:before-commit": 1,
    "recovery:committed": 1,
    "recovery:taken-over": 1,
}
"""Places in the driver, and how often each may be passed before it kills."""

WORKER_POINTS = {
    "task:read": 8,
    "task:frame": 12,
    "task:prepare": 8,
    "task:delta": 4,
    "half-written:delta": 4,
    "compaction:write": 2,
}
"""Places in Python workers and in the process that compacts: the driver lives on."""

MERGED_AFTER = 8
"""Epochs until there is something to compact for certain."""

STOPS = ("manifest:before", "manifest:after")

MAKER_POINTS = {"pin:made": 1, "savepoint:state": 1, "savepoint:before-json": 1}
"""Places in the process that makes a savepoint: the driver does not notice."""

BACK_POINTS = {
    "restore:resolved": 1,
    "restore:half-copied": 1,
    "restore:copied": 1,
    "rollback:claimed": 1,
    "rollback:before": 1,
    "rollback:done": 1,
}
"""Places in a driver that starts from a savepoint of its own job's past: its file output since then is taken back."""

RESCALE_POINTS = {"rescale:stopped": 1, "rescale:taken-over": 1}
"""Places in a driver that goes on with another parallelism."""

FATAL_POINTS = {*DRIVER_POINTS, *BACK_POINTS, *RESCALE_POINTS}
ROLLS_BACK = ("words", "panes", "chain", "buffers", "spread", "rules")
"""Jobs whose output can be taken back."""


@dataclass(frozen=True, slots=True)
class Fault:
    """`kind`: point, stop (at a point), or who is killed at a random time: driver, everybody, jvm, worker, executor.

    `after`: at the how-manieth passing, or after so many epochs and `delay` seconds.
    """

    kind: str
    place: str = ""
    after: int = 1
    delay: float = 0.0

    @property
    def fatal(self) -> bool:
        """Does the driver need a successor?"""
        return self.kind in ("driver", "everybody", "stop") or self.place in FATAL_POINTS

    @property
    def timed(self) -> bool:
        return self.kind not in ("point", "stop")

    @property
    def armed(self) -> str:
        return "" if self.timed else f"{self.place}={'stop' if self.kind == 'stop' else 'kill'}@{self.after}"

    def __str__(self) -> str:
        return f"{self.kind} {self.place}@{self.after}" if self.place else f"{self.kind} after {self.after} epochs"


@dataclass(frozen=True, slots=True)
class Round:
    """One driver's life: what it suffers, at most the last fatal, and what somebody does to the job meanwhile.

    `operation`: `savepoint` (one is made beside the epochs, its first maker killed at `at`), `back` (the driver starts from that
    savepoint), `rescale` (it is asked to).
    """

    faults: list[Fault] = field(default_factory=list)
    operation: str = ""
    at: Fault | None = None

    @property
    def kills(self) -> int:
        return len(self.faults) + (self.at is not None)


@dataclass(frozen=True, slots=True)
class Campaign:
    """One job, from start to finish; a round for each driver."""

    number: int
    job: str
    master: str
    rounds: list[Round] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.number}-{self.job}-{self.master.partition('[')[0]}"

    @property
    def faults(self) -> int:
        return sum(one.kills for one in self.rounds)


LOCAL, CLUSTER = "local[2,4]", "local-cluster[2,1,1024]"


def campaigns(seed: int, jobs: list[str], masters: tuple[str, ...] = (LOCAL, LOCAL, CLUSTER)) -> Iterator[Campaign]:
    """Campaigns without end. Every named place comes up before any comes up twice."""
    dice = random.Random(seed)
    fatal, harmless = _deck(dice, [*_points(DRIVER_POINTS), *_stops()], 5), _deck(dice, _points(WORKER_POINTS), 3)
    makers, back, rescales = (_cards(dice, points) for points in (MAKER_POINTS, BACK_POINTS, RESCALE_POINTS))
    for number in count():
        master = masters[number % len(masters)]
        job = jobs[number % len(jobs)]
        drawn = [_draw(dice, next(fatal), ("driver", "everybody")) for _ in range(3)]
        first, *others = sorted(drawn, key=lambda fault: fault.place.startswith("recovery:"))
        rounds = [Round([first], operation="savepoint", at=_draw(dice, next(makers), ()))]
        for worst in others:
            if worst.place.startswith("recovery:"):
                rounds.append(Round([worst]))
                continue
            spared = _draw(dice, next(harmless), ("executor", "worker") if master == CLUSTER else ("worker", "jvm"))
            if worst.timed and spared.timed:
                worst = replace(worst, after=spared.after + 2)  # let it get over the first
            if spared.place == "compaction:write":
                worst = replace(worst, after=worst.after + MERGED_AFTER)
            rounds.append(Round([spared, worst]))
        if job in ROLLS_BACK:
            rounds.append(Round([_draw(dice, next(back), ())], operation="back"))
        rounds.append(Round([_draw(dice, next(rescales), ())], operation="rescale"))
        if master == CLUSTER:
            rounds.append(Round([_draw(dice, None, ("executor",))]))
        yield Campaign(number, job, master, rounds)


def shortened(campaign: Campaign, faults: int) -> Campaign:
    """At most so many faults."""
    rounds = []
    for one in campaign.rounds:
        at = one.at if faults > 0 else None
        kept = one.faults[: max(0, faults - (at is not None))]
        if kept or at is not None:
            rounds.append(replace(one, faults=kept, at=at))
        faults -= one.kills
    return replace(campaign, rounds=rounds)


def _points(points: dict[str, int]) -> list[tuple[str, str, int]]:
    return [("point", place, most) for place, most in points.items()]


def _stops() -> list[tuple[str, str, int]]:
    return [("stop", place, 5) for place in STOPS]


def _cards(dice: random.Random, points: dict[str, int]) -> Iterator[tuple[str, str, int]]:
    """The places in random order, over and over."""
    while True:
        dealt = _points(points)
        dice.shuffle(dealt)
        yield from dealt


def _deck(dice: random.Random, cards: list[tuple[str, str, int]], blank_every: int) -> Iterator[tuple[str, str, int] | None]:
    """The cards in random order, over and over, with a blank now and then: a kill at a random time."""
    while True:
        dealt: list[tuple[str, str, int] | None] = [*cards, *([None] * (len(cards) // blank_every))]
        dice.shuffle(dealt)
        yield from dealt


def _draw(dice: random.Random, card: tuple[str, str, int] | None, at_random: tuple[str, ...]) -> Fault:
    if card is None:
        return Fault(dice.choice(at_random), after=dice.randint(1, 4), delay=dice.random() * 0.4)
    kind, place, most = card
    return Fault(kind, place, dice.randint(1, most))
