"""`penstock diff`: two snapshots compared, or what two jobs have published."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.screen.printable import echo
from penstock.cli.screen.problems import clean_errors
from penstock.cli.screen.showing import as_json, shown
from penstock.cli.screen.tables import console_for, print_table
from penstock.snapshots.diff.comparing import SnapshotDiff, diff
from penstock.snapshots.diff.output_diff import OutputDiff, diff_output


def diff_command(
    a: Annotated[str, typer.Argument(metavar="A", help="A savepoint, a job (its newest epoch), or JOB@EPOCH; a folder.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    output: Annotated[bool, typer.Option("--output", help="Compare what file sinks have published below two folders.")] = False,
    examples: Annotated[int, typer.Option(help="So many examples of each kind of difference.")] = 3,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if they differ.")] = False,
    as_json_: Annotated[bool, typer.Option("--json", help="JSON, for programs.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Compare two snapshots: per state, what was added, removed and changed from A to B."""
    console = console_for()
    with clean_errors(trace=trace):
        if output:
            outputs = diff_output(a, b, examples=examples)
            same = all(one.equal for one in outputs)
            if as_json_:
                echo(as_json([asdict(one) for one in outputs], indent=2))
            else:
                _print_output(console, outputs)
        else:
            found = diff(a, b, examples=examples)
            same = found.same
            if as_json_:
                echo(as_json({**asdict(found), "same": found.same}, indent=2))
            else:
                _print(console, found)
    if exit_code and not same:
        raise typer.Exit(1)


def _print(console: Console, found: SnapshotDiff) -> None:
    differing = [state for state in found.states if not state.same]
    console.print(Text(f"A  {found.a}\nB  {found.b}"), soft_wrap=True)
    if not differing:
        console.print(f"all {len(found.states)} states are the same")
    else:
        table = Table()
        for column in ("step", "state", "kind", "added", "removed", "changed", "unchanged", "note"):
            right = column in ("added", "removed", "changed", "unchanged")
            table.add_column(column, justify="right" if right else "left", overflow="fold")
        for state in differing:
            counts = [f"{count:,}" for count in (state.added, state.removed, state.changed, state.unchanged)]
            table.add_row(state.step, state.name, state.kind, *counts, f"only in {state.only}" if state.only else state.note)
        print_table(console, table, prose=("note",))
        same = len(found.states) - len(differing)
        if same:
            console.print(f"{same} more {'is' if same == 1 else 'are'} the same")
    for state in differing:
        if state.examples:
            console.print(f"\n{state.step}.{state.name}", style="bold")
        for change in state.examples:
            entry = "  ".join(f"{name}={shown(value)}" for name, value in change.entry.items())
            sign, style = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}[change.what]
            if change.what == "changed":
                text = f"{shown(change.before)} → {shown(change.after)}"
            else:
                value = change.after if change.what == "added" else change.before
                text = "" if value is None else shown(value)
            console.print(Text(f"  {sign} {entry}  {text}".rstrip(), style=style), soft_wrap=True)
    for what, pairs in (("source", found.sources), ("watermark", found.watermarks)):
        for step, (before, after) in pairs.items():
            console.print(Text(f"{what} {step}: {shown(before)} → {shown(after)}"), soft_wrap=True)


def _print_output(console: Console, outputs: list[OutputDiff]) -> None:
    table = Table()
    for column in ("sink", "in both", "only in A", "only in B"):
        table.add_column(column, justify="left" if column == "sink" else "right", overflow="fold")
    for one in outputs:
        missing = f" (not in {'B' if one.only == 'A' else 'A'})" if one.only else ""
        table.add_row(one.sink + missing, f"{one.same:,}", f"{one.only_a:,}", f"{one.only_b:,}")
    print_table(console, table)
    for one in outputs:
        if one.examples_a or one.examples_b:
            console.print(f"\n{one.sink}", style="bold")
        for sign, style, rows in (("-", "red", one.examples_a), ("+", "green", one.examples_b)):
            for row in rows:
                console.print(Text(f"  {sign} {shown(row)}", style=style), soft_wrap=True)
