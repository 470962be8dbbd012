"""The compiled job: what the planner made and every worker has. Immutable, picklable, sent once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.ids import JobId, StepId
from penstock.plan import job_pickle
from penstock.plan.definition import Definition
from penstock.records import DICT_ROW, RowType
from penstock.runtime.exchange import Channel
from penstock.runtime.unshippable import cannot_be_shipped
from penstock.state.key_groups import KeyGroups
from penstock.state.stores.store import StoreKind
from penstock.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalInput:
    """An input from a step of the same stage."""

    step: StepId
    tag: str | None
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStep:
    """A step as its stage runs it. Inputs over channels are in the channels' `ends`."""

    step: StepId
    definition: Definition
    inputs: int
    local: tuple[LocalInput, ...] = ()
    ordered: bool = False
    """A step that sees order follows: what goes out has ticks."""
    in_turn: bool = False
    """It has several inputs, and takes their records in turn, by ticks."""
    paced: bool = False
    """Of a source: it is read in order of event time, up to the epoch's bound."""
    updates: bool = False
    """What goes out has kinds of change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The steps between two exchanges, in topological order. `state_ids`: the states that live here.

    A stage without steps has no tasks: it is where the state of a loop lives, and comes after all others."""

    index: int
    steps: tuple[StageStep, ...]
    channels_in: tuple[Channel, ...] = ()
    channels_out: tuple[Channel, ...] = ()
    state_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopPlan:
    """How a loop runs. `store`: the stage without steps that has what is in it between epochs."""

    head: StepId
    tail: StepId
    begins: int
    """The stage of the head."""
    ends: int
    """The stage of the tail."""
    store: int
    ways: tuple[int, ...] | None = None
    """The channels by which all that leaves the head gets to the stage of the tail, if there is nothing else in between: then
    what stays in a partition can be sent through the body again by its task. None: it cannot, or needs no channel."""

    laps: bool = False
    """The stage of the tail can be run several times in an epoch."""

    @property
    def within(self) -> bool:
        """It has no exchange: it begins and ends in one task."""
        return self.begins == self.ends


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledJob:
    """A job ready to run."""

    name: str
    job: JobId
    storage: Storage
    stages: tuple[Stage, ...]
    parallelism: int
    max_parallelism: int
    key_hash: int
    state_ids: Mapping[tuple[str, str], int]
    fingerprint: str
    rows: tuple[RowType, ...] = (DICT_ROW,)
    local_dir: str | None = None
    keep_local_ms: int = 7 * 86_400_000
    state_store: StoreKind = "lmdb"
    paths: tuple[str, ...] = field(default=())
    known_as: Mapping[str, str] = field(default_factory=dict)
    loops: tuple[LoopPlan, ...] = ()

    @property
    def running(self) -> tuple[Stage, ...]:
        """The stages that have tasks."""
        return tuple(stage for stage in self.stages if stage.steps)

    def chain(self, laps: int) -> list[tuple[int, int]]:
        """The stages as they are run in an epoch, one after another, with the lap of each."""
        lapped = {loop.ends for loop in self.loops if loop.laps}
        return [(s.index, lap) for s in self.running for lap in range(laps if s.index in lapped else 1)]

    def loop(self, head: StepId) -> LoopPlan:
        return next(loop for loop in self.loops if loop.head == head)

    @property
    def key_groups(self) -> KeyGroups:
        return KeyGroups(self.max_parallelism, self.key_hash)

    def known_to_others(self, step: StepId) -> StepId:
        """The name by which a target or a feed knows a sink or a source, which may have been renamed since."""
        return StepId(self.known_as.get(step, step))

    def dumps(self) -> bytes:
        try:
            shipped = job_pickle.dumps(self)
        except Exception as error:
            steps = [step for stage in self.stages for step in stage.steps]
            parts: list[tuple[str, Any, Any]] = [(step.step, step.definition, step.definition.function()) for step in steps]
            parts += [
                (step, channel, channel.exchange.selector if callable(channel.exchange.selector) else None)
                for stage in self.stages
                for channel in stage.channels_out
                for step, _ in channel.ends
            ]
            raise cannot_be_shipped(parts, error) from error
        return msgspec.msgpack.encode((list(self.paths), shipped))


def load_job(data: bytes) -> CompiledJob:
    """The job from its bytes, in a worker, with the user's modules within reach."""
    paths, shipped = msgspec.msgpack.decode(data, type=tuple[list[str], bytes])
    for path in paths:
        if path not in sys.path:
            sys.path.append(path)
    job: CompiledJob = job_pickle.loads(shipped)
    return job
