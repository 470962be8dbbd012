"""What an epoch reads of a source, or looks up in: part of its order, noted as an intent, and kept in its manifest."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.connectors.protocol import Split
from penstock.ids import Milliseconds


class SourceOrder(msgspec.Struct, frozen=True):
    """What an epoch reads of one source.

    `tasks[p]` are the splits of task p, in order; `clocks` the state of each source partition's clock; `held` the least watermark
    of active partitions without a split in this epoch; `ended`: after this epoch the source is over.

    A source that is read in order of event time: `until`, only records with ticks below it are taken; `skip`, rows of a
    partition's first split that earlier epochs have taken; `more`, partitions with input beyond their splits: where one has less
    than the bound asks for, the epoch must be planned anew; None: it need not. `ends`: the others are at their end. `exhausted`:
    nothing will ever come after these splits. `last`: the latest time of partitions that are over.
    """

    tasks: list[list[Split]]
    clocks: dict[str, Any] = {}
    held: Milliseconds | None = None
    ended: bool = False
    until: Milliseconds | None = None
    skip: dict[str, int] = {}
    more: list[str] | None = None
    ends: bool = False
    exhausted: bool = False
    last: Milliseconds | None = None


class TableVersion(msgspec.Struct, frozen=True):
    """A table as it was loaded once. `digest`: of its content; `loaded_ms`: when it was last looked at."""

    number: int
    path: str
    digest: str
    rows: int
    loaded_ms: Milliseconds
