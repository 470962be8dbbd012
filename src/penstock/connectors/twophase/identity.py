"""What a target remembers of a sink."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.ids import Epoch, JobId, StepId


@dataclass(frozen=True, slots=True)
class SinkKey:
    """A sink of a job. Job uuids are never reused, so neither are keys."""

    job: JobId
    sink: StepId

    def __str__(self) -> str:
        return f"{self.job}/{self.sink}"


@dataclass(frozen=True, slots=True)
class PublishId:
    """An epoch of a sink: the same id always comes with the same rows."""

    job: JobId
    sink: StepId
    epoch: Epoch

    def __str__(self) -> str:
        return f"{self.job}/{self.sink}/{self.epoch}"
