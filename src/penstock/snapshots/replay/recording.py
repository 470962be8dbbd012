"""What a step was given and what it made of it, kept as a test case.

A case has a *part* for each epoch and partition: state before, input in order (records, watermarks, the clock), output, state
after. Each part can be run by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import ConfigError
from penstock.ids import MIN_WATERMARK, Milliseconds, StepId
from penstock.plan.definition import Definition
from penstock.records import NO_TIMESTAMP, Batch
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.map_batches import MapBatches
from penstock.runtime.operators.observer import TimeKind
from penstock.runtime.operators.operator import DEAD_LETTERS, DeadLetter, Operator, Ports
from penstock.runtime.operators.sink import SinkStep
from penstock.runtime.operators.source import SourceStep
from penstock.runtime.services import Services
from penstock.snapshots.replay.entries import Entry, StateForms
from penstock.snapshots.replay.result import Emitted, Event
from penstock.snapshots.replay.state_items import items_of
from penstock.snapshots.replay.watching.peeking import outputs_of
from penstock.snapshots.replay.watching.trace import KeyFilter
from penstock.state.encoding.json_values import to_plain
from penstock.state.encoding.keys import KeyCodec
from penstock.state.entries.store_keys import value_prefix

VERSION = 1


@dataclass(slots=True)
class _Part:
    epoch: int
    partition: int
    watermark: Milliseconds
    input: list[dict[str, Any]] = field(default_factory=list)
    output: list[Emitted | Event] = field(default_factory=list)
    touched: set[bytes] = field(default_factory=set)
    changes: dict[bytes, bytes | None] = field(default_factory=dict)
    before: dict[bytes, bytes] = field(default_factory=dict)
    error: str | None = None
    now: Milliseconds = MIN_WATERMARK

    @property
    def happened(self) -> bool:
        return bool(self.output or self.touched) or any("records" in one for one in self.input)


class Recording:
    """Records one step."""

    def __init__(self, definition: Definition, forms: StateForms, codec: KeyCodec, wanted: KeyFilter | None) -> None:
        self._definition = definition
        self._forms = StateForms(forms)
        self._codec = codec
        self._wanted = wanted
        self._parts: list[_Part] = []

    # --- while it runs -------------------------------------------------------------------------------------------------------

    def begin(self, operator: Operator) -> None:
        services, watermark = operator.services, operator.watermark
        self._parts.append(_Part(services.order.epoch, services.partition, watermark, now=watermark))

    def batch(self, batch: Any, port: int | Ports) -> None:
        """Records. Where their ticks go on, the watermark is said between them: to the step that is the same."""
        part = self._parts[-1]
        inner: Batch = batch.batch if isinstance(batch, Keyed) else batch
        times = [NO_TIMESTAMP] * len(inner) if inner.timestamps is None else inner.timestamps.tolist()
        ticks = None if inner.ticks is None else inner.ticks.tolist()
        ports = [port] * len(inner) if isinstance(port, int) else port.tolist()
        rows: list[dict[str, Any]] = []
        for row, value in enumerate(inner.values()):
            data: dict[str, Any] = {}
            if isinstance(batch, Keyed):
                encoded = batch.keys[batch.codes[row]]
                if self._wanted is not None and not self._wanted(encoded):
                    continue
                part.touched.add(encoded)
                data["key"] = to_plain(self._codec.decode(encoded))
            if ticks is not None and ticks[row] > part.now:
                if rows:
                    part.input.append({"records": rows})
                    rows = []
                part.now = ticks[row]
                part.input.append({"watermark": part.now})
            if ports[row]:
                data["port"] = ports[row]
            data["value"] = to_plain(value)
            data["time"] = None if times[row] == NO_TIMESTAMP else times[row]
            rows.append(data)
        if rows:
            part.input.append({"records": rows})

    def time(self, kind: TimeKind, time: Milliseconds | None) -> None:
        part = self._parts[-1]
        said: dict[str, Any] = {kind: True if kind == "end" else time}
        if kind == "watermark":
            part.now = part.now if time is None else max(part.now, time)
            if part.input and part.input[-1] == said:
                return
        part.input.append(said)

    def emitted(self, tag: str | None, batch: Batch) -> None:
        """What a step emits of which the calls are not known."""
        self._parts[-1].output += outputs_of(batch, tag)

    def event(self, event: Event) -> None:
        """A call, and what it made."""
        part = self._parts[-1]
        part.output.append(event)
        part.error = event.error if self._definition.errors == "fail" else None

    def fired(self, encoded: bytes) -> None:
        """A timer of a key has fired."""
        if self._wanted is None or self._wanted(encoded):
            self._parts[-1].touched.add(encoded)

    def changed(self, entries: Iterable[Entry]) -> None:
        self._parts[-1].changes.update((key, after) for key, _, after in entries)

    def close(self, services: Services) -> None:
        """The task is over, and what was committed before it can still be read."""
        part = self._parts[-1]
        for number, form in self._forms.items():
            if form.kind.many_keys or form.declaration.scope != "keyed":
                continue
            group_of = services.job.key_groups.of
            wanted = [value_prefix(group_of(key), number) + key for key in part.touched]
            if form.kind.by_time:  # a key's entries are anywhere in its group
                wanted = [value_prefix(group, number) for group in {group_of(key) for key in part.touched}]
            for prefix in wanted:
                found = services.committed.scan(prefix)
                part.before.update((key, data) for key, data in found if form.place(key).key in part.touched)

    # --- afterwards ------------------------------------------------------------------------------------------------------------

    def write(self, path: str, about: dict[str, Any]) -> None:
        """Write the case."""
        parts = [self._part(part) for part in self._parts if part.happened]
        if not parts:
            raise ConfigError(
                "there is nothing to record: the step saw no record and no timer" + (" of this key" if self._wanted else ""),
                hint="choose another step, key or epoch",
            )
        case = {
            "penstock_case": VERSION,
            **about,
            "kind": self._definition.kind,
            "errors": self._definition.errors,
            **_options(self._definition),
            "parts": parts,
        }
        why = why_not_run(self._definition)
        if why is not None:
            case["only_to_read"] = why
        with open(path, "w", encoding="utf-8") as file:
            json.dump(case, file, indent=1, ensure_ascii=False)
            file.write("\n")

    def _part(self, part: _Part) -> dict[str, Any]:
        after: dict[bytes, bytes | None] = {**part.before}
        after.update((key, data) for key, data in part.changes.items() if self._of_touched(key, part))
        data = {
            "epoch": part.epoch,
            "partition": part.partition,
            "watermark": None if part.watermark == MIN_WATERMARK else part.watermark,
            "before": [item.to_plain() for item in items_of(self._forms, part.before.items())],
            "input": part.input,
            "output": [_output(one) for each in part.output for one in (each.outputs if isinstance(each, Event) else [each])],
        }
        if part.error is not None:
            return {**data, "error": part.error}
        kept = [(key, value) for key, value in after.items() if value is not None]
        return {**data, "after": [item.to_plain() for item in items_of(self._forms, kept)]}

    def _of_touched(self, store_key: bytes, part: _Part) -> bool:
        form = self._forms.of_entry(store_key)
        return form is not None and not form.kind.many_keys and form.place(store_key).key in part.touched


def _output(emitted: Emitted) -> dict[str, Any]:
    value = emitted.value
    if emitted.tag == DEAD_LETTERS and isinstance(value, DeadLetter):
        value = {"error": value.error, "record": value.record}
    data = {"value": to_plain(value), "time": emitted.timestamp_ms}
    return data if emitted.tag is None else {**data, "tag": emitted.tag}


def _options(definition: Definition) -> dict[str, Any]:
    """How the function is called, where that is not always the same."""
    if not isinstance(definition, MapBatches):
        return {}
    cls = definition.row.cls
    return {
        "batches": {
            "format": "pandas" if definition.as_pandas else "arrow",
            "schema": None if cls is None else f"{cls.__module__}:{cls.__qualname__}",
            "columns": definition.columns,
            "timestamp": definition.timestamp,
            "unit": definition.unit,
            "aligned": definition.aligned,
        }
    }


def why_not_run(definition: Definition) -> str | None:
    """Why a step's case is only to be read, and not to be run; None if it can be run."""
    if isinstance(definition, SourceStep):
        return "a source: its input is outside of the case"
    if isinstance(definition, SinkStep) or definition.kind.startswith("sink "):
        return "a sink: what it did with its input is outside of the case"
    if any(one.scope != "keyed" for one in definition.states(StepId("case"))):
        return "state that is not kept by key: a case has the state of keys only"
    window = getattr(definition, "window", None)
    if window is not None:
        return "windows over columns: their state is kept in chunks of many keys (aggregate(..., columnar=False) can be run)"
    return None
