"""From what `window(...)` and the methods after it are given to the definitions of a plan. What is wrong is refused here."""

from __future__ import annotations

from typing import Any

from penstock.errors import PlanError
from penstock.functions import OutputTag
from penstock.plan.definition import ErrorPolicy
from penstock.plan.exchange import Exchange
from penstock.timing.durations import Duration, to_ms
from penstock.windows.aggregates import Aggregate
from penstock.windows.assigners import WindowAssigner
from penstock.windows.declared import Declared
from penstock.windows.evictors import CountEvictor, Evictor
from penstock.windows.incremental import Aggregating, Incremental
from penstock.windows.spec import WindowSpec
from penstock.windows.step import WindowBody, WindowStep
from penstock.windows.triggers import CountTrigger, PurgingTrigger, Trigger


def spec_of(
    assigner: WindowAssigner,
    trigger: Trigger | None,
    evictor: Evictor | None,
    allowed_lateness: Duration,
    late: OutputTag[Any] | None,
) -> WindowSpec:
    """Check what `window(...)` was given."""
    if not isinstance(assigner, WindowAssigner):
        raise PlanError(f"window({assigner!r}): these are no windows", hint="for example window(TumblingWindows(minutes=5))")
    if late is not None and not isinstance(late, OutputTag):
        raise PlanError(f"late={late!r}", hint=f"give a tag: late=OutputTag({str(late)!r}), and read it with .side_output(tag)")
    return WindowSpec(
        assigner=assigner,
        trigger=assigner.default_trigger() if trigger is None else trigger,
        evictor=evictor,
        allowed_lateness_ms=to_ms(allowed_lateness, what="allowed_lateness"),
        late=None if late is None else late.name,
    )


def aggregation_of(
    aggregates: tuple[Any, ...], columns: dict[str, Aggregate], key_names: tuple[str, ...], *, tolerant: bool
) -> Incremental:
    """An `AggregateFunction`, or declared aggregates: `tolerant` ones leave out the records on which they fail."""
    if len(aggregates) == 1 and not columns and not isinstance(aggregates[0], Aggregate):
        if isinstance(aggregates[0], type):
            raise PlanError(
                f"aggregate({aggregates[0].__name__}): this is a class", hint=f"give an instance: {aggregates[0].__name__}()"
            )
        if not all(callable(getattr(aggregates[0], name, None)) for name in ("create_accumulator", "add", "result")):
            raise PlanError(
                f"aggregate({aggregates[0]!r}): this is neither an AggregateFunction nor a declared aggregate",
                hint='for example aggregate(agg.max("price")), with `from penstock import aggregates as agg`',
            )
        return Aggregating(aggregates[0])
    return Declared(declared_of(aggregates, columns), key_names, tolerant=tolerant)


def window_step(
    spec: WindowSpec, body: WindowBody, exchange: Exchange, *, label: str, errors: ErrorPolicy, columnar: bool
) -> WindowStep:
    return WindowStep(
        spec=spec,
        body=body,
        key_type=exchange.key_type,
        key_fields=exchange.key_fields,
        label=label,
        errors=errors,
        columnar=columnar,
    )


def declared_of(aggregates: tuple[Any, ...], columns: dict[str, Aggregate]) -> tuple[Aggregate, ...]:
    given = (*aggregates, *columns.values())
    wrong = [one for one in given if not isinstance(one, Aggregate)]
    if wrong or not given:
        what = repr(wrong[0]) if wrong else "nothing"
        raise PlanError(
            f"aggregate: {what} is not an aggregate",
            hint='give one AggregateFunction, or declared aggregates such as count() and avg("temperature")',
        )
    return (*aggregates, *(one.named(name) for name, one in columns.items()))


def count_windows(size: int, slide: int | None) -> dict[str, Any]:
    """How `GlobalWindows` become windows of so many records."""
    if slide is None:
        return {"trigger": PurgingTrigger(CountTrigger(size))}
    return {"trigger": CountTrigger(slide), "evictor": CountEvictor(size)}


def key_names(exchange: Exchange) -> tuple[str, ...]:
    """What the parts of a key are called in the results of declared aggregates."""
    if callable(exchange.selector):
        return ("key",)
    return tuple(f"f{field}" if isinstance(field, int) else field for field in exchange.selector or ())


def check_function(function: Any, what: str) -> None:
    if isinstance(function, type):
        raise PlanError(f"{what}({function.__name__}): this is a class", hint=f"give an instance: {function.__name__}()")
    if not callable(function) and not callable(getattr(function, "process", None)):
        raise PlanError(
            f"{function!r} is not a WindowFunction", hint="give an instance of a class with process(self, values, ctx)"
        )
