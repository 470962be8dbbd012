"""`penstock check`: could a program start from a snapshot? Nothing is run or changed."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.screen.printable import echo
from penstock.cli.screen.problems import clean_errors
from penstock.cli.screen.tables import console_for, print_table
from penstock.compile.in_process import within
from penstock.snapshots.restore.preflight import Preflight, check

_STYLES = {"incompatible": "bold red", "dropped": "red", "removed": "red", "migrates": "yellow", "new": "cyan", "added": "cyan"}


def check_command(
    program: Annotated[str, typer.Argument(metavar="APP.py", help="The program.")],
    against: Annotated[str, typer.Option(metavar="SAVEPOINT|JOB|JOB@EPOCH", help="What it is to resume from.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="The program's own arguments; its options go behind --.")
    ] = None,
    allow_dropped_state: Annotated[
        bool, typer.Option("--allow-dropped-state", help="State that the program does not claim may be lost.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Tell, for each state, whether a program could resume what another has left; exit code 1 if it would be refused."""
    with clean_errors(trace=trace):
        settings = {"allow_dropped_state": True} if allow_dropped_state else {}
        report = within(lambda env: check(env, against, **settings), program, arguments or [])
    if as_json:
        echo(json.dumps(report.data(), indent=2))
    else:
        _show(report, console_for())
    if report.refused:
        raise typer.Exit(1)


def _show(report: Preflight, console: Console) -> None:
    at = f"@{report.epoch}"
    table = Table(title=f"against {report.against.removesuffix(at)}, epoch {report.epoch}", title_justify="left")
    for column in ("step", "state", "verdict", "why"):
        table.add_column(column, overflow="fold")
    for state in report.states:
        table.add_row(state.step, state.name, Text(state.verdict, _STYLES.get(state.verdict, "")), "\n".join(state.why))
    for source in report.sources:
        table.add_row(source.step, "(source)", Text(source.verdict, _STYLES.get(source.verdict, "")), source.why)
    print_table(console, table, prose=("why",))
    for problem in report.problems:
        console.print(Text(f"refused: {problem}", "red"), soft_wrap=True)
    if not report.refused:
        console.print("the program can resume from there")
