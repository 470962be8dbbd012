"""`penstock savepoint-rewrite`: a savepoint with another number of key groups, or by the newest key hash."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.screen.printable import PrintableConsole, echo
from penstock.cli.screen.problems import clean_errors
from penstock.cli.screen.progress import size
from penstock.snapshots.edit.regrouping import regroup
from penstock.snapshots.savepoint.format import SavepointInfo
from penstock.snapshots.view.reading import read
from penstock.state.key_groups import KeyGroups


def savepoint_rewrite_command(
    savepoint: Annotated[str, typer.Argument(metavar="SAVEPOINT", help="A savepoint, or JOB[@EPOCH].")],
    to: Annotated[str, typer.Option("--to", help="An empty or new folder for the new savepoint.")],
    max_parallelism: Annotated[
        int | None, typer.Option("--max-parallelism", help="The new number of key groups, 1 to 32768; else as many as there are.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Write a savepoint again, with the key hash of new jobs, and with another max_parallelism if one is given.

    The number of key groups is otherwise fixed for the life of a job's state. A savepoint with another number starts a new job,
    with a new storage and new folders for its file sinks. One with the same number can also be restored in the job's own storage.
    """
    with clean_errors(trace=trace), read(savepoint) as found:
        before = found.info.key_groups
        if PrintableConsole(stderr=True).is_terminal:
            with PrintableConsole(stderr=True).status("rewriting") as status:
                info = regroup(found.uri, max_parallelism, to, told=lambda step, name: status.update(f"rewriting {step}.{name}"))
        else:
            info = regroup(found.uri, max_parallelism, to)
    echo("\n".join(summary_of(info, before)))


def summary_of(info: SavepointInfo, before: KeyGroups) -> list[str]:
    """What was made, and what it can be used for. Pure."""
    hashed = f", key hash {before.hash} became {info.key_hash}" if info.key_hash != before.hash else ""
    lines = [f"{info.uri}: {info.max_parallelism} key groups{hashed}, {info.rows:,} entries, {size(info.bytes)}"]
    if info.max_parallelism == before.count:
        return [*lines, f"to go on with it, in the job's own storage or a new one: --from {info.uri}"]
    new = f"to go on with it, start a new job with --from {info.uri}, a new storage and new folders for its file sinks"
    return [*lines, f"{new}: the old ones belong to a job with {before.count} key groups"]
