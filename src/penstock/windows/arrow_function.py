"""`apply`: a function of a window's records as an Arrow batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.records import as_batch
from penstock.runtime.fields import to_arrow
from penstock.runtime.operators.returned import rows_of
from penstock.windows.functions import WindowContext, WindowFunction


class ArrowFunction(WindowFunction[Any, Any, Any]):
    """Calls `function(key, window, batch)`. Rows of a batch, table or DataFrame that it returns are dicts."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def process(self, values: list[Any], ctx: WindowContext[Any]) -> Iterator[Any]:
        result = self.function(ctx.key, ctx.window, to_arrow(values, "apply"))
        if result is not None:
            for batch in as_batch(rows_of(result, "apply", self.function, "apply")):
                yield from batch.values()
