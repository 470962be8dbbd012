"""The compiled job: what the planner made and every worker has. Immutable, picklable, sent once."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from penstock.ids import JobId, StepId
from penstock.records import DICT_ROW, RowType
from penstock.runtime.exchange import Channel
from penstock.runtime.operators.operator import Definition
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
    key_type: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The steps between two exchanges, in topological order. `state_ids`: the states that live here."""

    index: int
    steps: tuple[StageStep, ...]
    channels_in: tuple[Channel, ...] = ()
    channels_out: tuple[Channel, ...] = ()
    state_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledJob:
    """A job ready to run."""

    name: str
    job: JobId
    storage: Storage
    stages: tuple[Stage, ...]
    parallelism: int
    max_parallelism: int
    state_ids: Mapping[tuple[str, str], int]
    fingerprint: str
    rows: tuple[RowType, ...] = (DICT_ROW,)
    local_dir: str | None = None
    paths: tuple[str, ...] = field(default=())

    def dumps(self) -> bytes:
        return cloudpickle.dumps(self)  # type: ignore[no-any-return]


def load_job(data: bytes) -> CompiledJob:
    """The job from its bytes, in a worker.

    Classes of the user's main program exist in a worker only through the plan. They are made findable under `__main__`, so
    that plain pickle can pass their instances between workers.
    """
    job: CompiledJob = cloudpickle.loads(data)
    for path in job.paths:
        if path not in sys.path:
            sys.path.append(path)
    tracked = getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", {})
    main = sys.modules["__main__"]
    for cls in list(tracked):
        if cls.__module__ == "__main__" and "." not in cls.__qualname__:
            setattr(main, cls.__qualname__, cls)
    return job
