"""The states of a function by their scope: of each key, of the step (broadcast), of each partition (operator)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.errors import PlanError
from penstock.functions import function_location
from penstock.ids import Milliseconds, StepId
from penstock.plan.definition import Scope, StateDeclaration
from penstock.runtime.services import Services
from penstock.state.descriptors import BroadcastMapState, OperatorListState, State, declared_states
from penstock.state.overlay.broadcast import BroadcastView
from penstock.state.overlay.writes import StateLabel

_HINTS: dict[Scope, str] = {
    "keyed": "state of this kind is kept by key: bring the records of each key together with key_by(...)",
    "broadcast": "broadcast state is changed by broadcast records: stream.connect(control.broadcast()).process(...)",
    "operator": "this step keeps no list of its own: declare a state that is kept by key",
}


def states_of(body: Any, scope: Scope) -> dict[str, State]:
    """The states that a function declares, of one scope."""
    return {name: state for name, state in declared_states(body).items() if state.scope == scope}


def check_scopes(body: Any, scopes: tuple[Scope, ...], made_for: str) -> None:
    """Refuse a function that declares a state of another scope."""
    for name, state in declared_states(body).items():
        if state.scope not in scopes:
            raise PlanError(
                f"{function_location(body)} has the state {name!r}, a {type(state).__name__}: no {made_for} can have it",
                hint=_HINTS[state.scope],
            )


def declarations(step: StepId, body: Any, **keys: Any) -> Iterator[StateDeclaration]:
    """The states of a function, as the plan has them; `keys`: what is to be said of the key of those that have one."""
    for name, state in declared_states(body).items():
        more = keys if state.scope == "keyed" else {}
        yield StateDeclaration(step=step, name=name, state=state, kind=state.kind, scope=state.scope, **more)


def bind_operator_states(services: Services, step: StepId, function: Any, body: Any) -> None:
    """Give an opened function the lists of its partition."""
    for name, state in states_of(body, "operator").items():
        assert isinstance(state, OperatorListState)
        object.__setattr__(function, name, services.operator_list(step, name, state, body))


def bind_broadcast_states(
    services: Services, step: StepId, function: Any, body: Any, watermark: Milliseconds
) -> dict[str, BroadcastView]:
    """Give an opened function its broadcast state, which can be read, and changed while it is open."""
    states = {name: state for name, state in states_of(body, "broadcast").items() if isinstance(state, BroadcastMapState)}
    handles = services.broadcast_state(step, states, watermark, body) if states else {}
    views = {name: BroadcastView(handle, StateLabel(step=step, state=name, function=body)) for name, handle in handles.items()}
    for name, view in views.items():
        object.__setattr__(function, name, view)
    return views
