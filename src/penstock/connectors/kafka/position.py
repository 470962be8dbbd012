"""How far topics have been read: part of manifests, so it has a version.

`next` is the offset to read next, by partition; `stop`, of a bounded source, the offset to end at. `id` is the topic's own: a
topic that was deleted and made again has another. `caught_up_ms`: when, by the driver's clock, everything that was in the
partition had been planned; what was written before that has been read.
"""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.connectors.protocol import Position
from penstock.errors import SourceError

VERSION = 1


class TopicPosition(msgspec.Struct, frozen=True):
    id: str
    next: list[int]
    stop: list[int] | None = None
    caught_up_ms: list[int | None] = []


class KafkaPosition(msgspec.Struct, frozen=True):
    topics: dict[str, TopicPosition]
    version: int = VERSION


def read_position(position: Position) -> KafkaPosition:
    """The position of a manifest."""
    if position is None:
        return KafkaPosition({})
    try:
        found = msgspec.convert(position, KafkaPosition)
    except msgspec.ValidationError as error:
        raise SourceError("the position of the Kafka source cannot be read", detail=str(error), nature="configuration") from error
    if found.version != VERSION:
        raise SourceError(
            f"the position of the Kafka source has version {found.version}, this release reads {VERSION}",
            hint="go on with the release that wrote it, or a newer one",
            nature="configuration",
        )
    return found


def written(position: KafkaPosition) -> Any:
    return msgspec.to_builtins(position)
