"""`EmbeddedReader`: state for programs on the job's host, without HTTP, as fast as the store is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from penstock.ids import Epoch
from penstock.query.answers import many_values, shown_watermark, value_of
from penstock.query.catalog import Access, Catalog
from penstock.query.client.decoding import Answered, RawAnswer, absent, decoded
from penstock.query.reader import LOOK_EVERY_S, StateReader
from penstock.query.reading import Reading
from penstock.query.value_getter import ValueGetter
from penstock.query.windows_of_key import Closed, WindowOfKey, closed_windows, merged, open_windows, published_until, went_on
from penstock.state.descriptors import State


class EmbeddedReader:
    """The committed state of the job in a storage, read in this process. Not for several threads at once.

    Who can read a job's storage and local state is its own user: every state can be read.
    """

    def __init__(
        self, storage: str | os.PathLike[str], *, local_dir: str | None = None, look_every_s: float = LOOK_EVERY_S
    ) -> None:
        self._reader = StateReader(storage, local_dir=local_dir, look_every_s=look_every_s)
        self._catalog = Catalog(Access(all_states=True))

    def __enter__(self) -> EmbeddedReader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()

    @property
    def epoch(self) -> Epoch:
        """The newest committed epoch."""
        with self._reading() as reading:
            return reading.epoch

    def get(self, step: str, state: str, key: Any, declared: State | None = None, *, at: int | None = None) -> Answered[Any]:
        """What a state keeps for a key: of the type that is declared, or as JSON has it; None if nothing is kept."""
        with self._reading(at) as reading:
            view = self._catalog.view(reading, step, state)
            encoded = view.key_of_value(key)
            entries = view.entries(reading, encoded)
            watermark = shown_watermark(reading, step)
            if not entries:
                value = None if declared is None else absent(declared)
                return Answered(epoch=reading.epoch, watermark=watermark, value=value, found=False)
            if declared is None:
                value = view.value(reading, encoded, entries)
            else:
                raw = RawAnswer(reading.epoch, watermark, entries, view.kind.name, view.info.namespace, view.info.ttl)
                value = decoded(raw, declared)
            return Answered(epoch=reading.epoch, watermark=watermark, value=value)

    def get_many(self, step: str, state: str, keys: Sequence[Any], *, at: int | None = None) -> Answered[list[Any]]:
        """What a state keeps for several keys, at one epoch, as JSON has it; None where nothing is."""
        with self._reading(at) as reading:
            found = many_values(self._catalog, reading, step, state, keys)
            watermark = shown_watermark(reading, step)
            return Answered(epoch=reading.epoch, watermark=watermark, value=[one.value for one in found])

    def windows(self, step: str, state: str, key: Any, closed: Closed, *, wait_s: float = 5.0) -> Answered[list[WindowOfKey]]:
        """A key's tumbling windows by their end: the open ones from state, the closed ones from a file sink's output. All are of
        one epoch, whose output is waited for."""
        while True:
            with self._reading() as reading:
                view = self._catalog.view(reading, step, state)
                found = value_of(reading, view, view.key_of_value(key))
            published_until(self._reader, found.epoch, wait_s)
            rows = list(closed_windows(closed, key, found.epoch))
            if not went_on(closed, found.epoch):
                value = merged(open_windows(found.value), rows)
                return Answered(epoch=found.epoch, watermark=found.watermark, value=value, found=bool(value))
            self._reader.refresh()

    def values(self, step: str, state: str, declared: State, key_type: Any = None) -> ValueGetter:
        """What gives the newest value of a key: the fastest way, for many gets of a state with one value for each key."""
        return ValueGetter(self._reader, self._catalog, step, state, declared, key_type)

    def _reading(self, at: int | None = None) -> Reading:
        return self._reader.reading() if at is None else self._reader.at(Epoch(at))
