"""Cases that `penstock replay --record` kept, run against a function.

    def test_the_night_of_march_3():
        replay_recorded("cases/attic.json", FireAlarm())

The step starts with the recorded state, is given the recorded input, and must give the recorded output and leave the recorded
state. Of a case that ended with an error nothing is known after it: a function that does not raise has passed.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from difflib import unified_diff
from itertools import groupby
from typing import Any

import numpy as np

from penstock.api.environment import StreamEnvironment
from penstock.api.stream import DataStream
from penstock.errors import ConfigError, CorruptFileError, UserCodeError
from penstock.experimental import experimental
from penstock.functions import ReduceFunction
from penstock.ids import MIN_WATERMARK, Milliseconds
from penstock.jobs.manifest import StateLayout
from penstock.plan.definition import Definition
from penstock.plan.expressions.expression import Expression
from penstock.records import DICT_ROW, NO_TIMESTAMP, Batch, Records, RowType
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.expressions import Filter
from penstock.runtime.operators.keyed import KeyedProcess
from penstock.runtime.operators.map_batches import MapBatches
from penstock.runtime.operators.operator import DEAD_LETTERS, DeadLetter
from penstock.runtime.operators.stateless import Stateless
from penstock.runtime.rolling import RollingReduce
from penstock.snapshots.replay.entries import StateForms
from penstock.snapshots.replay.recording import VERSION, why_not_run
from penstock.snapshots.replay.result import NO_KEY
from penstock.snapshots.replay.state_items import StateItem, entries_of, items_of
from penstock.snapshots.replay.watching.trace import key_type_of
from penstock.state.encoding.json_values import from_plain, to_plain
from penstock.state.encoding.keys import key_codec
from penstock.state.encoding.untyped import loaded_class
from penstock.state.entries.store_keys import HEAD_SIZE, state_id_of_store_key
from penstock.state.files.durable import FileIdentity, write_delta
from penstock.state.key_groups import CRC32
from penstock.testing.harness import STEP, Emitted, OperatorHarness, Snapshot

STATELESS = ("map", "flat_map", "filter", "process")


@experimental
@dataclass(frozen=True, slots=True)
class Recorded:
    """What came of a part of a case: what was expected, and what was found."""

    epoch: int
    partition: int
    output: list[Emitted]
    sides: dict[str, list[Emitted]]
    state: list[StateItem]


@experimental
def replay_recorded(
    path: str | os.PathLike[str], function: Any, *, key_type: Any = None, types: list[type] | None = None
) -> list[Recorded]:
    """Run a recorded case against a function; `AssertionError`, with what differs, if it does something else than was recorded.

    `function` is what the step was given: a `KeyedProcessFunction`, the function of a `map`, `filter`, `reduce`, …; or, for every
    kind of step, a `StreamEnvironment` that has the step under its recorded name, or a function from a keyed stream to the step's
    stream: `lambda keyed: keyed.window(...).reduce(...)`. `types`: classes of recorded values that are not found by name.
    """
    case = _load(path)
    find = _Classes(case, function, types or [])
    definition = _definition(case, function, key_type, find)
    why = case.get("only_to_read") or why_not_run(definition)
    if why is not None:
        raise ConfigError(f"the case in {path} cannot be run, only read", detail=f"step {case['step']!r}: {why}")
    found = []
    for part in case["parts"]:
        with OperatorHarness(
            definition,
            key=lambda value: value,
            key_type=key_type_of(definition) or key_type,
            max_parallelism=case["max_parallelism"],
            key_hash=case.get("key_hash", CRC32),
        ) as harness:
            found.append(_run(harness, definition, part, find, f"{os.path.basename(path)}, step {case['step']!r}"))
    return found


# --- what is run -----------------------------------------------------------------------------------------------------------


def _load(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            case: dict[str, Any] = json.load(file)
        version = case["penstock_case"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} is not a recorded case", detail=f"{type(error).__name__}: {error}") from error
    if version != VERSION:
        raise CorruptFileError(f"the case in {path} is of format {version}; this Penstock reads format {VERSION}")
    return case


def _definition(case: dict[str, Any], function: Any, key_type: Any, find: _Classes) -> Definition:
    kind, errors = case["kind"], case["errors"]
    if isinstance(function, StreamEnvironment):
        node = function.graph.nodes.get(case["step"])
        if node is None:
            raise ConfigError(f"the program has no step {case['step']!r}", detail=f"its steps: {', '.join(function.graph.nodes)}")
        return node.definition
    if kind == "filter" and isinstance(function, Expression):
        return Filter(condition=function.node, errors=errors)
    if kind in STATELESS:
        return Stateless(what=kind, body=function, errors=errors)
    if kind == "map_batches":
        return _of_batches(function, case.get("batches", {}), find)
    if callable(getattr(function, "process", None)) and kind.startswith("keyed "):
        return KeyedProcess(body=function, key_type=key_type, errors=errors, label=kind.removeprefix("keyed "))
    if kind == "keyed reduce" and (isinstance(function, ReduceFunction) or _parameters(function) == 2):
        reducing = function.reduce if isinstance(function, ReduceFunction) else function
        return KeyedProcess(body=RollingReduce(reducing, None), key_type=key_type, errors=errors, label="reduce")
    if callable(function):
        env = StreamEnvironment("recorded")
        made = function(env.from_collection([]).key_by(lambda value: value, key_type=key_type))
        if isinstance(made, DataStream):
            return replace(env.graph.nodes[made._step].definition, errors=errors)
    raise ConfigError(
        f"{function!r} is not what a case of kind {kind!r} can be run against",
        hint="give the step's function, an environment with the step, or lambda keyed: keyed.…(...)",
    )


def _of_batches(function: Any, options: dict[str, Any], find: _Classes) -> MapBatches:
    """Cases of earlier versions have no options."""
    return MapBatches(
        body=function,
        as_pandas=options.get("format") == "pandas",
        row=RowType(find(options["schema"])) if options.get("schema") else DICT_ROW,
        columns=None if options.get("columns") is None else tuple(options["columns"]),
        timestamp=options.get("timestamp"),
        unit=options.get("unit", "ms"),
        aligned=options.get("aligned", False),
    )


def _parameters(function: Any) -> int:
    try:
        return len(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return 0


class _Classes:
    """Finds the classes of recorded values: where they were, or where the function is now."""

    def __init__(self, case: dict[str, Any], function: Any, types: list[type]) -> None:
        given = function if inspect.isfunction(function) else type(function)
        self._modules = [given.__module__, str(case.get("main", "")), "__main__"]
        self._types = types

    def __call__(self, name: str) -> type:
        module, _, qualname = name.partition(":")
        for cls in self._types:
            if cls.__qualname__ == qualname:
                return cls
        for place in [module, *self._modules] if module != "__main__" else self._modules:
            found = loaded_class(place, qualname)
            if found is not None:
                return found
        raise ConfigError(
            f"the class {qualname} of a recorded value is not found",
            detail=f"it was in {module}; looked for in {', '.join(filter(None, dict.fromkeys(self._modules)))}",
            hint="import its module in the test, or pass types=[...]",
        )


def _run(harness: OperatorHarness, definition: Definition, part: dict[str, Any], find: _Classes, what: str) -> Recorded:
    forms = StateForms.of(harness._graph, dict(harness._state_ids))
    before = [StateItem.from_plain(item, find) for item in part["before"]]
    watermark = MIN_WATERMARK if part["watermark"] is None else part["watermark"]
    clock = next((item["clock"] for item in part["input"] if "clock" in item), 0)
    harness.restore(_snapshot(harness, forms, before, watermark, clock))
    try:
        for item in part["input"]:
            _give(harness, definition, item, find)
        harness.snapshot()
    except UserCodeError as error:
        error.add_note(f"while running the recorded case {what}, epoch {part['epoch']}")
        raise
    output = harness.take()
    sides = {tag: [_letter(one) for one in harness.side(tag)] for tag in sorted(harness._sides)}
    sides = {tag: emitted for tag, emitted in sides.items() if emitted}
    entries = [entry for services in harness._services for entry in services.committed.range(b"", b"\xff" * 8)]
    found = Recorded(part["epoch"], part["partition"], output, sides, items_of(forms, entries))
    if "error" not in part:
        _compare(part, found, find, f"{what}, epoch {part['epoch']}, partition {part['partition']}")
    return found


def _snapshot(
    harness: OperatorHarness, forms: StateForms, before: list[StateItem], watermark: Milliseconds, clock: Milliseconds
) -> Snapshot:
    """The recorded state as a snapshot of the harness."""
    layout: StateLayout = harness._layout
    entries: list[tuple[bytes, bytes | None]] = [*entries_of(forms, before, harness._key_groups)]
    if entries:
        stage = harness._stage.index
        name = f"state/s{stage}/p0/0000000000-0-recorded.delta"
        ref = write_delta(harness._storage, name, entries, FileIdentity(harness._job, 0, str(stage), 0, "0-recorded"))
        layout.chains[stage][0].append(ref)
        due = layout.next_due[stage][0]
        for key, _ in entries:
            number = state_id_of_store_key(key)
            time = forms[number].kind.due(key[HEAD_SIZE:])
            if time is not None:
                due[number] = min(time, due.get(number, time))
    return Snapshot(layout, {STEP: watermark} if watermark != MIN_WATERMARK else {}, clock)


def _give(harness: OperatorHarness, definition: Definition, item: dict[str, Any], find: _Classes) -> None:
    operator = harness._operators[0]
    if "records" in item:
        for port, rows in groupby(item["records"], lambda row: row.get("port", 0)):
            operator.on_input(port, _batch(definition, list(rows), find))
    elif "watermark" in item:
        operator.on_watermark(item["watermark"])
    elif "clock" in item:
        harness.processing_time(item["clock"])
    elif "end" in item:
        operator.on_end()


def _batch(definition: Definition, rows: list[dict[str, Any]], find: _Classes) -> Any:
    values = [from_plain(row["value"], find) for row in rows]
    given = [row["time"] for row in rows]
    times = None
    if any(time is not None for time in given):
        times = np.asarray([NO_TIMESTAMP if time is None else time for time in given], dtype=np.int64)
    batch: Batch = Records(values, times)
    if "key" not in rows[0]:
        return batch
    encode = key_codec(key_type_of(definition)).encode
    encoded = [encode(from_plain(row["key"], find)) for row in rows]
    keys = list(dict.fromkeys(encoded))
    index = {key: number for number, key in enumerate(keys)}
    return Keyed(batch, keys, np.asarray([index[key] for key in encoded], dtype=np.int32))


# --- comparing -------------------------------------------------------------------------------------------------------------


def _letter(emitted: Emitted) -> Emitted:
    value, time = emitted
    return ({"error": value.error, "record": value.record}, time) if isinstance(value, DeadLetter) else emitted


def _compare(part: dict[str, Any], found: Recorded, find: _Classes, what: str) -> None:
    output: list[Emitted] = []
    sides: dict[str, list[Emitted]] = {}
    for one in part["output"]:
        emitted = (from_plain(one["value"], find), one["time"])
        (output if "tag" not in one else sides.setdefault(one["tag"], [])).append(emitted)
    state = [StateItem.from_plain(item, find) for item in part["after"]]
    problems = [*_differing("output", output, found.output)]
    for tag in sorted(sides.keys() | found.sides.keys()):
        name = "dead letters" if tag == DEAD_LETTERS else f"side output {tag!r}"
        problems += _differing(name, sides.get(tag, []), found.sides.get(tag, []))
    problems += _differing("state", _sorted(state), _sorted(found.state), _item)
    if problems:
        raise AssertionError("\n".join([f"not what was recorded in {what}", *problems]))


def _written(one: Any) -> Any:
    return one.to_plain() if isinstance(one, StateItem) else to_plain(one)


def _sorted(items: list[StateItem]) -> list[StateItem]:
    return sorted(items, key=lambda item: repr(item.place()))


def _item(item: StateItem) -> str:
    window = "" if item.window is None else f", window {item.window[0]} to {item.window[1]}"
    name = item.state if item.map_key is NO_KEY else f"{item.state}[{item.map_key!r}]"
    expires = "" if item.expires is None else f" (expires {item.expires})"
    return f"{name} of key {item.key!r}{window} = {item.value!r}{expires}"


def _shown(emitted: Emitted) -> str:
    value, time = emitted
    return f"{value!r}" if time is None else f"{value!r} at {time}"


def _differing(what: str, recorded: list[Any], found: list[Any], show: Callable[[Any], str] = _shown) -> Iterator[str]:
    """A readable difference of two lists; nothing if they are equal, a NaN being a NaN."""
    if [_written(one) for one in recorded] == [_written(one) for one in found]:
        return
    left, right = [show(one) for one in recorded], [show(one) for one in found]
    lines = list(unified_diff(left, right, "recorded", "found", lineterm="", n=2))
    yield f"{what}: {len(recorded)} recorded, {len(found)} found"
    yield from (f"  {line}" for line in lines or ["  values differ, although they look the same"])
