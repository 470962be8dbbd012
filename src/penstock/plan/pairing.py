"""Do the inputs of a step go together? Their number, whether they are keyed, and by keys of one type."""

from __future__ import annotations

from typing import Any

from penstock.errors import PlanError
from penstock.ids import StepId
from penstock.plan.definition import Definition, Takes
from penstock.plan.exchange import Exchange

BOTH_SIDES = "key both sides alike, a.key_by(...) and b.key_by(...), or neither"


def check_inputs(step: StepId, definition: Definition, edges: tuple[Exchange | None, ...]) -> None:
    """Raise `PlanError` unless the inputs are what the definition takes. `edges`: how each of them is exchanged."""
    wanted = definition.takes(len(edges))
    if len(edges) != len(wanted):
        raise PlanError(
            f"step {step!r} ({definition.kind}) takes {_inputs(len(wanted))}, not {len(edges)}",
            hint="a step is given exactly the streams that it is defined for",
        )
    for number, (takes, exchange) in enumerate(zip(wanted, edges, strict=True), 1):
        which = f"step {step!r} ({definition.kind}): " + ("its input" if len(edges) == 1 else f"input {number}")
        _check(which, takes, exchange, several=len(edges) > 1)


def _check(which: str, takes: Takes, exchange: Exchange | None, *, several: bool) -> None:
    kind = None if exchange is None else exchange.kind
    if takes.broadcast != (kind == "broadcast") and (takes.broadcast or takes.keyed is not None):
        must, hint = ("must be", "call broadcast() on it") if takes.broadcast else ("may not be", "leave broadcast() out")
        raise PlanError(f"{which} {must} broadcast", detail=_found(exchange), hint=hint)
    if takes.keyed is not None and takes.keyed != (kind == "key_by"):
        must = "must be" if takes.keyed else "may not be"
        hint = BOTH_SIDES if several else "call key_by(...) on it" if takes.keyed else "leave key_by(...) out"
        raise PlanError(f"{which} {must} keyed", detail=_found(exchange), hint=hint)
    if takes.keyed and exchange is not None and exchange.key_type != takes.key_type:
        raise PlanError(
            f"{which} has keys of another type",
            detail=f"keys of this input: {_type(exchange.key_type)}; of the step: {_type(takes.key_type)}",
            hint="give the same key_type= to key_by(...) of every input, or to none: keys of two types are never the same key",
        )


def _inputs(number: int) -> str:
    return f"{number or 'no'} input{'' if number == 1 else 's'}"


def _found(exchange: Exchange | None) -> str:
    return "it is " + ("not exchanged" if exchange is None else f"exchanged by {exchange.describe()}")


def _type(key_type: Any) -> str:
    if key_type is None:
        return "no key_type="
    return key_type.__qualname__ if isinstance(key_type, type) else str(key_type)
