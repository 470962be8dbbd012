"""What a driver is doing: states, and the ways between them.

    standby:  standing by ─→ taking over
    driver:   taking over ─→ running ─→ finished
              running ─ a step failed ─→ recovering ─ it may be tried again ─→ running
              running ─ asked to, or idle ─→ draining ─ all time has ended ─→ finished
              running ─ asked to, or idle ─→ stopping ─→ stopped
              running ─ asked to ─→ rescaling ─ the next loop of this process ─→ taking over
              draining ─ a signal ─→ stopping ─ the input has ended meanwhile ─→ finished
              draining ─ a step failed ─→ recovering
              stopping ─ a step failed ─→ recovering
              rescaling ─ a step failed ─→ recovering
    deadline: taking over ─→ giving up ─ nothing is waited for ─→ stopped
              giving up ─ its last commit was made after all ─→ finished
              running ─→ giving up
              recovering ─→ giving up
              draining ─→ giving up
              stopping ─→ giving up
              rescaling ─→ giving up
    over:     standing by ─ the job is finished ─→ finished
              standing by ─ the job was stopped, or the standby was ─→ stopped
              failed ─ a standby ─→ standing by
              fenced ─ a standby ─→ standing by

Any state but the last four leads to `failed`, and to `fenced` once the job is being taken over.

The main thread alone moves from state to state. `status.json` names the state from the first epoch on, and `penstock jobs` shows
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

State = Literal[
    "standing by",
    "taking over",
    "running",
    "recovering",
    "draining",
    "rescaling",
    "stopping",
    "giving up",
    "finished",
    "stopped",
    "failed",
    "fenced",
]

OVER: frozenset[State] = frozenset(("finished", "stopped", "failed", "fenced"))

TRANSITIONS: Mapping[State, frozenset[State]] = {
    "standing by": frozenset(("taking over", "finished", "stopped", "failed")),
    "taking over": frozenset(("running", "giving up", "failed", "fenced")),
    "running": frozenset(
        ("recovering", "draining", "rescaling", "stopping", "giving up", "finished", "failed", "fenced"),
    ),
    "recovering": frozenset(("running", "giving up", "failed", "fenced")),
    "draining": frozenset(("recovering", "stopping", "giving up", "finished", "failed", "fenced")),
    "rescaling": frozenset(("taking over", "recovering", "giving up", "failed", "fenced")),
    "stopping": frozenset(("recovering", "giving up", "stopped", "finished", "failed", "fenced")),
    "giving up": frozenset(("stopped", "finished", "failed", "fenced")),
    "finished": frozenset(),
    "stopped": frozenset(),
    "failed": frozenset(("standing by",)),
    "fenced": frozenset(("standing by",)),
}


class IllegalTransitionError(RuntimeError):
    """A mistake in Penstock: the driver went from one state to another that does not follow it."""


class Lifecycle:
    """The state of one driver. `entered` is called with every new one."""

    def __init__(self, state: State, entered: Callable[[State], None] = lambda state: None) -> None:
        self.state = state
        self._entered = entered

    def enter(self, state: State) -> None:
        """Go to a state that follows; to stay where one is changes nothing."""
        if state == self.state:
            return
        if state not in TRANSITIONS[self.state]:
            raise IllegalTransitionError(f"a driver that is {self.state!r} cannot be {state!r} next")
        self.state = state
        self._entered(state)
