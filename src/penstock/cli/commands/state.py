"""`penstock state`: what is in a savepoint, or in an epoch of a job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.screen.printable import echo
from penstock.cli.screen.problems import clean_errors
from penstock.cli.screen.progress import size
from penstock.cli.screen.showing import as_json, shown
from penstock.cli.screen.tables import console_for, print_table
from penstock.errors import StateError
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK
from penstock.snapshots.view.lookup import readable
from penstock.snapshots.view.reading import Snapshot, SnapshotState, read
from penstock.state.entries.kinds import is_internal, kind_of
from penstock.timing.durations import calendar_time


def state_command(
    snapshot: Annotated[
        str, typer.Argument(metavar="SAVEPOINT|JOB[@EPOCH]", help="A savepoint, a job's newest epoch, or one of it.")
    ],
    step: Annotated[str | None, typer.Argument(metavar="[STEP", help="Only the states of this step.")] = None,
    state: Annotated[str | None, typer.Argument(metavar="[STATE", help="The entries of this state.")] = None,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]]]", help="All that is kept for this key.")] = None,
    limit: Annotated[int, typer.Option(help="So many entries at most; 0: all.")] = 20,
    skip: Annotated[int, typer.Option(help="Entries to pass over first.")] = 0,
    as_json_: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Look into a snapshot: its states, the entries of a state, or one key."""
    console = console_for()
    with clean_errors(trace=trace), read(snapshot) as found:
        if step is None or state is None:
            states = [one for one in found.states() if step in (None, one.step)]
            if step is not None and not states:
                found.state(step)
            if as_json_:
                echo(json.dumps(_described(found, states), indent=2))
            else:
                _print_states(console, found, states)
            return
        one = found.state(step, state)
        if key is None:
            rows = list(islice(_rows(one), skip, skip + limit + 1 if limit else None))
            more = bool(limit) and len(rows) > limit
            rows = rows[:limit] if limit else rows
        elif kind_of(one.info).many_keys:
            wanted = parse_key(one, key)
            wanted = list(wanted) if isinstance(wanted, tuple) else wanted
            rows, more = [row for row in _rows(one) if wanted in (row.get("key"), *row.get("keys", ()))], False
        else:
            rows, more = readable(one.find(parse_key(one, key))), False
        if as_json_:
            echo(as_json(rows, indent=2))
        elif not rows:
            echo("no entry" if key is None else f"nothing is kept for {key}")
        elif key is not None and len(rows) == 1:
            _print_row(console, rows[0])
        else:
            _print_rows(console, rows)
            if more:
                console.print(f"there are more: --skip {skip + len(rows)} goes on, --limit 0 shows all")


def parse_key(state: SnapshotState, text: str) -> Any:
    """A key as it is typed: the text itself where keys are texts, JSON otherwise."""
    kind = _key_type(state)
    undeclared = state.info.key_schema is None
    if pa.types.is_string(kind) and not (undeclared and state.columns.undeclared.key == "any"):
        return text
    try:
        key = json.loads(text)
    except ValueError:
        if undeclared or not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_nested(kind)):
            return text
        raise StateError(f"{text!r} is not a key of step {state.step!r}", hint=f"its keys are {kind}") from None
    if isinstance(key, list):
        return tuple(key)
    return float(key) if pa.types.is_floating(kind) and isinstance(key, int) else key


def _key_type(state: SnapshotState) -> pa.DataType:
    if "key" in state.schema.names:
        return state.schema.field("key").type
    return state.schema.field("keys").type.value_type


def _rows(state: SnapshotState) -> Iterator[dict[str, Any]]:
    if state.has_windows:
        yield from state.windows()
        return
    for batch in state.batches():
        yield from readable(pa.Table.from_batches([batch]))


def _described(found: Snapshot, states: list[SnapshotState]) -> dict[str, Any]:
    return {
        "snapshot": found.uri,
        "job": found.job.name,
        "epoch": found.epoch,
        "max_parallelism": found.max_parallelism,
        "key_hash": found.info.key_hash,
        "parent": None if found.parent is None else found.parent.source,
        "program": found.info.program,
        "sources": {step: source.position for step, source in found.sources.items()},
        "watermarks": found.watermarks,
        "states": [
            {
                "step": one.step,
                "state": one.name,
                "kind": one.kind,
                "entries": one.entries,
                "bytes": one.bytes,
                "type": one.info.schema,
                "key_type": one.info.key_schema,
                "next_due": one.next_due,
            }
            for one in states
        ],
    }


def _print_states(console: Console, found: Snapshot, states: list[SnapshotState]) -> None:
    console.print(f"job {found.job.name}, epoch {found.epoch}, {found.info.key_groups}", soft_wrap=True)
    if found.parent is not None:
        console.print(Text(f"from {found.parent.source}"), soft_wrap=True)
    for step, source in found.sources.items():
        ended = " (ended)" if source.ended else ""
        console.print(Text(f"source {step} at {shown(source.position)}{ended}"), soft_wrap=True)
    table = Table()
    for column in ("step", "state", "kind", "entries", "bytes", "type", "watermark"):
        table.add_column(column, justify="right" if column in ("entries", "bytes") else "left", overflow="fold")
    hidden = 0
    for one in states:
        if is_internal(one.kind) and not one.entries:
            hidden += 1
            continue
        watermark = found.watermarks.get(one.step)
        table.add_row(
            one.step, one.name, one.kind, f"{one.entries:,}", size(one.bytes), Text(spelled(one.info.schema)), _moment(watermark)
        )
    print_table(console, table)
    if hidden:
        console.print(f"and {hidden} of timers, of which there are none")


def _print_rows(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table()
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(row.get(name))) for name in names))
    print_table(console, table)


def _print_row(console: Console, row: dict[str, Any]) -> None:
    table = Table(show_header=False)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for name, value in row.items():
        text = as_json(value, indent=2) if isinstance(value, (dict, list)) else shown(value)
        table.add_row(Text(name), Text(text))
    print_table(console, table)


def _moment(watermark: int | None) -> str:
    if watermark is None or watermark == MIN_WATERMARK:
        return "-"
    if watermark == MAX_WATERMARK:
        return "the end"
    return shown(calendar_time(watermark))


def spelled(schema: Any) -> str:
    """A type as a person would write it.

    >>> spelled({"list": {"union": ["int", "none"]}})
    'list[int | None]'
    """
    if schema is None:
        return "-"
    if isinstance(schema, str):
        return "None" if schema == "none" else schema
    kind = next(iter(schema))
    given = schema[kind]
    if kind == "constrained":
        return spelled(given)
    if kind in ("list", "set", "frozenset"):
        return f"{kind}[{spelled(given)}]"
    if kind == "tuple_of":
        return f"tuple[{spelled(given)}, ...]"
    if kind in ("tuple", "dict"):
        return f"{kind}[{', '.join(map(spelled, given))}]"
    if kind == "union":
        return " | ".join(sorted(map(spelled, given), key=lambda name: name == "None"))
    if kind == "literal":
        return f"Literal[{', '.join(map(repr, given))}]"
    return "pickle" if kind == "pickle" else str(given).rpartition(".")[2]
