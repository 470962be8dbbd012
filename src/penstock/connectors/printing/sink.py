"""A sink that prints, on the driver, once an epoch is committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.connectors.protocol import Committable, CommitterContext, WriterContext
from penstock.connectors.volatile import CommittedOnce, VolatileSink, VolatileWriter, unpack
from penstock.errors import ConfigError
from penstock.ids import Epoch

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

    def writer(self, context: WriterContext) -> VolatileWriter:
        return VolatileWriter(self.limit)

    def committer(self, context: CommitterContext) -> PrintCommitter:
        return PrintCommitter(self, context)

    def describe(self) -> str:
        return f"print, as {self.prefix!r}" if self.prefix else "print"


class PrintCommitter:
    def __init__(self, sink: PrintSink, context: CommitterContext) -> None:
        self._sink = sink
        self._context = context

    def commit(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        if not _PRINTED.first(self._context, epoch):
            return
        head = f"{self._sink.prefix}> " if self._sink.prefix else ""
        lines: list[str] = []
        total = 0
        for committable in committables:
            values, count = unpack(committable)
            lines += [f"{head}{value}" for value in values]
            total += count
        lines = lines[: self._sink.limit]
        if total > len(lines):
            lines.append(f"{head}… and {total - len(lines)} more")
        if lines:
            print("\n".join(lines), flush=True)

    def abort(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        pass

    def close(self) -> None:
        pass
