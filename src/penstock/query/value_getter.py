"""Single gets in a hot loop: everything that does not depend on the key is looked up once for each reading."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any

from penstock.ids import Epoch
from penstock.query.catalog import Catalog
from penstock.query.errors import BadRequestError
from penstock.query.reader import StateReader
from penstock.query.reading import Reading
from penstock.state.descriptors import AggregatingState, State, ValueState
from penstock.state.encoding.keys import key_codec
from penstock.state.entries.store_keys import value_prefix
from penstock.state.overlay.handles import state_codec


class ValueGetter:
    """Called with a key, gives its newest committed value; a `ValueState`'s default, or None, if nothing is kept."""

    def __init__(self, reader: StateReader, catalog: Catalog, step: str, state: str, declared: State, key_type: Any) -> None:
        self._reader = reader
        self._catalog = catalog
        self._names = step, state
        self.encode = key_codec(key_type).encode
        self._decode = state_codec(declared).decode
        self._result = declared.aggregate.result if isinstance(declared, AggregatingState) else None
        self._absent: Callable[[], Any] = declared.fresh_default if isinstance(declared, ValueState) else lambda: None
        self.reading: Reading | None = None
        self.state_number = -1
        self._until = 0.0
        self._of: Callable[[bytes], int]
        self._gets: list[tuple[bytes, Callable[[bytes], bytes | None]]]

    @property
    def epoch(self) -> Epoch | None:
        """Of the value that was given last."""
        return None if self.reading is None else self.reading.epoch

    def __call__(self, key: Any) -> Any:
        if monotonic() >= self._until:
            self._renew()
        encoded = self.encode(key)
        head, get = self._gets[self._of(encoded)]
        data = get(head + encoded)
        if data is None:
            return self._absent()
        value = self._decode(data)
        return value if self._result is None else self._result(value)

    def close(self) -> None:
        if self.reading is not None:
            self.reading.close()
            self.reading = None
        self._until = 0.0

    def _renew(self) -> None:
        self.close()
        reading = self._reader.reading()
        try:
            view = self._catalog.view(reading, *self._names)
            if not view.is_direct or view.info.ttl:
                raise BadRequestError(
                    f"state {self._names[1]!r} of step {self._names[0]!r} has no single value for a key", hint="use get()"
                )
            number = self.state_number = view.number
            parts = [reading.part(number, group) for group in reading.groups]
            self._gets = [(value_prefix(group, number), part.get) for group, part in enumerate(parts)]
            self._of = view.key_groups.of
        except BaseException:
            reading.close()
            raise
        self.reading = reading
        self._until = monotonic() + self._reader.look_every_s
