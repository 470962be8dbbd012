"""A sink that prints, on the driver, once an epoch is committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.connectors.protocol import CommitterContext
from penstock.connectors.staging import CommittedOnce, VolatileCommitter, VolatileSink
from penstock.errors import ConfigError

_PRINTED = CommittedOnce()


@dataclass(frozen=True)
class PrintSink(VolatileSink):
    """Prints every record on a line, of a stream that updates with its kind (`+U {…}`); of an epoch at most `limit`, and then how
    many more there were."""

    prefix: str = ""
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise ConfigError(f"PrintSink cannot print {self.limit} records", hint="limit= is 0 or more, or None for all")

    def committer(self, context: CommitterContext) -> PrintCommitter:
        return PrintCommitter(self, context)

    def describe(self) -> str:
        return f"print, as {self.prefix!r}" if self.prefix else "print"


class PrintCommitter(VolatileCommitter):
    def __init__(self, sink: PrintSink, context: CommitterContext) -> None:
        super().__init__(context, _PRINTED)
        self._sink = sink

    def show(self, values: list[Any], count: int) -> None:
        head = f"{self._sink.prefix}> " if self._sink.prefix else ""
        lines = [f"{head}{value}" for value in values[: self._sink.limit]]
        if count > len(lines):
            lines.append(f"{head}… and {count - len(lines)} more")
        if lines:
            print("\n".join(lines), flush=True)
