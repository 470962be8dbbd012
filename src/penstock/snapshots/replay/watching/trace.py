"""What is noted of one step while it runs again, and of which keys."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import PenstockError
from penstock.ids import Epoch
from penstock.plan.definition import Definition
from penstock.snapshots.replay.entries import StateForms
from penstock.snapshots.replay.result import Event, StepReplay
from penstock.state.encoding.keys import KeyCodec, key_codec
from penstock.windows.step import WindowStep

if TYPE_CHECKING:
    from penstock.snapshots.replay.recording import Recording
    from penstock.snapshots.replay.watching.debugger import Debugger

KeyFilter = Callable[[bytes], bool]


def key_filter(text: Any, codec: KeyCodec) -> KeyFilter:
    """Whether an encoded key is the one that was asked for: a key, or text that is a Python literal or the key itself."""
    wanted: set[bytes] = set()
    for candidate in _candidates(text, codec.key_type):
        try:
            wanted.add(codec.encode(candidate))
        except (PenstockError, TypeError):
            continue
    return wanted.__contains__


def _candidates(text: Any, key_type: Any) -> Iterator[Any]:
    yield text
    values = [text]
    if isinstance(text, str):
        try:
            values.append(ast.literal_eval(text))
            yield values[-1]
        except (ValueError, SyntaxError):
            pass
    if key_type is not None:
        for value in values:
            try:
                yield msgspec.convert(value, key_type, strict=False)
            except (msgspec.MsgspecError, TypeError):
                continue


@dataclass(slots=True, kw_only=True)
class StepTrace:
    """What is noted of a step in all of its tasks. `wanted`: of which keys (None: of all); `limit`: how many events."""

    result: StepReplay
    definition: Definition
    forms: StateForms
    shown: frozenset[Epoch]
    wanted: KeyFilter | None = None
    limit: int | None = None
    debugger: Debugger | None = None
    tape: Recording | None = None
    keys: set[bytes] = field(default_factory=set)
    calls: int = 0
    raised: Event | None = None
    """The last event whose function raised."""
    attributed: bool = False
    """What comes in is noted record by record, as it is processed; otherwise by the batch."""

    @property
    def codec(self) -> KeyCodec:
        return key_codec(key_type_of(self.definition))

    @property
    def full(self) -> bool:
        return self.limit is not None and len(self.result.events) >= self.limit

    def matches(self, encoded: bytes | None) -> bool:
        return self.wanted is None or (encoded is not None and self.wanted(encoded))


def key_type_of(definition: Definition) -> Any:
    window = getattr(definition, "window", None)
    return getattr(window if isinstance(window, WindowStep) else definition, "key_type", None)
