"""`penstock lineage`: where a job comes from, and what was made of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text
from rich.tree import Tree

from penstock.api.job import Job
from penstock.cli.screen.printable import PrintableConsole, echo
from penstock.cli.screen.problems import clean_errors
from penstock.cli.screen.tables import WIDEST
from penstock.diagnosis.redaction import redact_data
from penstock.jobs.lineage import Lineage, Note


def lineage_command(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's storage: a folder or URI.")],
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Draw the tree of jobs, savepoints, restores and forks that a job is in."""
    with clean_errors(trace=trace):
        handle = Job(job)
        found = handle.lineage()
        if as_json:
            echo(json.dumps(redact_data(found.describe()), indent=2))
            return
        tree = Tree(_job(found, handle.storage))
        _grow(tree, found, handle.storage)
        # A tree is cut at the console's width; nothing of a place may be.
        PrintableConsole(width=WIDEST).print(tree, soft_wrap=True)


def _grow(tree: Tree, lineage: Lineage, asked: str) -> None:
    """Notes in the order of their making."""
    for note in sorted([*lineage.restores, *lineage.savepoints], key=lambda note: note.made_ms):
        if note.kind == "savepoint":
            tree.add(f"savepoint of epoch {note.epoch}, {_when(note)}: {note.place}")
        else:
            tree.add(f"started from epoch {note.epoch}, as epoch {note.at}, {_when(note)}: {note.place}")
    for note, child in lineage.forks:
        branch = tree.add(Text(f"fork of epoch {note.epoch}, {_when(note)}: ") + _job(child, asked))
        _grow(branch, child, asked)


def _job(lineage: Lineage, asked: str) -> Text:
    name = Text(lineage.name, "bold" if lineage.storage == asked else "")
    if not lineage.reachable:
        return name + Text(f", {lineage.storage}: not there any more, or cannot be read")
    return name + Text(f", {lineage.storage}: epoch {lineage.epoch if lineage.epoch is not None else '-'}")


def _when(note: Note) -> str:
    return f"{datetime.fromtimestamp(note.made_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
