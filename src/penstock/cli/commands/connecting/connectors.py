"""`penstock connectors`: which sources and sinks are installed."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.table import Table

from penstock.cli.screen.printable import echo
from penstock.cli.screen.problems import clean_errors
from penstock.cli.screen.tables import console_for, print_table
from penstock.connectors.installed import InstalledConnector, installed_connectors


def connectors_command(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """List the connectors that are installed, and what the others of them need."""
    with clean_errors(trace=trace):
        found = installed_connectors()
        if as_json:
            echo(json.dumps([_described(each) for each in found], indent=2))
            return
        table = Table()
        for header in ("connector", "sources", "sinks", "from", "what", "ready"):
            table.add_column(header)
        for each in found:
            connector = each.connector
            sources = ", ".join(connector.sources) if connector else ""
            sinks = ", ".join(connector.sinks) if connector else ""
            summary = connector.summary if connector else ""
            table.add_row(each.name, sources or "-", sinks or "-", each.package, summary, each.problem or "yes")
        print_table(console_for(), table, prose=("what", "ready"))


def _described(found: InstalledConnector) -> dict[str, object]:
    connector = found.connector
    return {
        "name": found.name,
        "package": found.package,
        "module": connector.module if connector else None,
        "sources": list(connector.sources) if connector else [],
        "sinks": list(connector.sinks) if connector else [],
        "summary": connector.summary if connector else "",
        "ready": not found.problem,
        "problem": found.problem,
    }
