"""What an epoch reads of a source: part of its order, noted as an intent, and kept in its manifest."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.connectors.protocol import Split
from penstock.ids import Milliseconds


class SourceOrder(msgspec.Struct, frozen=True):
    """What an epoch reads of one source.

    `tasks[p]` are the splits of task p, in order; `clocks` the state of each source partition's clock; `held` the least watermark
    of active partitions without a split in this epoch; `ended`: after this epoch the source is over.
    """

    tasks: list[list[Split]]
    clocks: dict[str, Any] = {}
    held: Milliseconds | None = None
    ended: bool = False
