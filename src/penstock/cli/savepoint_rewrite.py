"""`penstock savepoint-rewrite`: a savepoint with another number of key groups."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from penstock.cli.problems import clean_errors
from penstock.cli.progress import size
from penstock.snapshots.regrouping import regroup


def savepoint_rewrite_command(
    savepoint: Annotated[str, typer.Argument(metavar="SAVEPOINT", help="A savepoint, or JOB[@EPOCH].")],
    max_parallelism: Annotated[int, typer.Option("--max-parallelism", help="The new number of key groups, 1 to 32768.")],
    to: Annotated[str, typer.Option("--to", help="An empty or new folder for the new savepoint.")],
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Write a savepoint again with another max_parallelism, which is otherwise fixed for the life of a job's state."""
    with clean_errors(trace=trace):
        if Console(stderr=True).is_terminal:
            with Console(stderr=True).status("rewriting") as status:
                info = regroup(savepoint, max_parallelism, to, told=lambda step, name: status.update(f"rewriting {step}.{name}"))
        else:
            info = regroup(savepoint, max_parallelism, to)
    typer.echo(f"{info.uri}: {info.max_parallelism} key groups, {info.rows:,} entries, {size(info.bytes)}")
