"""`penstock rescale`: a running job goes on with another parallelism."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from penstock.api.job import Job
from penstock.cli.screen.printable import echo
from penstock.cli.screen.problems import clean_errors, errors


def rescale_command(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's storage: a folder or URI.")],
    parallelism: Annotated[int, typer.Argument(metavar="N", help="Partitions of each stage, 1 to the job's max_parallelism.")],
    timeout: Annotated[float, typer.Option(help="Seconds to wait until the job is ready again.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Let a running job go on with N partitions: same process, same state, no savepoint."""
    with clean_errors(trace=trace):
        handle = Job(job)
        with errors.status(f"{handle.name}: finishing its epoch, and going on with {parallelism} partitions"):
            done = handle.rescale(parallelism, timeout=timeout)
        echo(json.dumps(asdict(done), indent=2) if as_json else done.message)
