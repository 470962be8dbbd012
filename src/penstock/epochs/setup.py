"""What a driver is given: a program, and all it takes to run it."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.compile.programs import Program
from penstock.config import JobConfig
from penstock.diagnosis.invocation import UNATTENDED, Invocation
from penstock.epochs.clock import Clock
from penstock.epochs.executor import Executor
from penstock.epochs.history import Listener
from penstock.plan.nodes import Graph
from penstock.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    graph: Graph
    config: JobConfig
    storage: Storage
    executor: Executor
    clock: Clock = field(default_factory=Clock)
    listeners: tuple[Listener, ...] = ()
    python_paths: tuple[str, ...] = ()
    program: Program | None = None
    invocation: Invocation = UNATTENDED
