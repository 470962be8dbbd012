"""From what `enrich(...)` is given to the definition of a plan. What is wrong is refused here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.errors import PlanError
from penstock.joins.columns import named_columns
from penstock.joins.static.step import Enrich
from penstock.joins.static.tables import GivenTable
from penstock.plan.definition import ErrorPolicy
from penstock.timing.durations import Duration, to_ms


def enrich_step(
    table: Any,
    on: str | Sequence[str] | Mapping[str, str],
    columns: Iterable[str] | Mapping[str, str] | None,
    how: str,
    function: Callable[[Any, dict[str, Any] | None], Any] | None,
    refresh: Duration | None,
    format: str | None,
    errors: ErrorPolicy,
) -> Enrich:
    if how not in ("left", "inner"):
        raise PlanError(f"enrich(how={how!r})", hint='choose "left" (records without a row stay) or "inner" (they do not)')
    pairs = named_columns([on] if isinstance(on, str) else on)
    if not pairs:
        raise PlanError("enrich without a key", hint='say which column is the key: on="id", or on={"customer": "id"}')
    if function is not None and (columns is not None or not callable(function)):
        raise PlanError(
            "enrich takes columns or a function", hint="a function of the record and the row (a dict, or None) gives the result"
        )
    if function is None and errors != "fail":
        raise PlanError(f"enrich(errors={errors!r}): over columns no record fails by itself", hint="leave errors= out")
    refresh_ms = None if refresh is None else to_ms(refresh, what="refresh")
    return Enrich(
        table=GivenTable(table, format, refresh_ms),
        on=pairs,
        columns=named_columns(columns),
        keeps=how == "left",
        function_=function,
        errors=errors,
    )
