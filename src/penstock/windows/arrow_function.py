"""`apply`: a function of a window's records as an Arrow batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.records import as_batch
from penstock.runtime.fields import to_arrow
from penstock.windows.functions import WindowContext, WindowFunction


class ArrowFunction(WindowFunction[Any, Any, Any]):
    """Calls `function(key, window, batch)`. Rows of a batch or table that it returns are dicts."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def process(self, values: list[Any], ctx: WindowContext[Any]) -> Iterator[Any]:
        result = self.function(ctx.key, ctx.window, to_arrow(values, "apply"))
        for batch in () if result is None else as_batch(result):
            yield from batch.values()
