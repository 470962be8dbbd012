"""`penstock replay`: run a kept epoch again, look into it, stop in it, keep it as a test case."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Annotated, Any

import typer

from penstock.cli.screen.printable import echo
from penstock.cli.screen.problems import clean_errors, errors
from penstock.cli.screen.replay_view import show_list, show_replay
from penstock.cli.screen.tables import console_for
from penstock.errors import ConfigError
from penstock.jobs.terms import job_in
from penstock.snapshots import Replay, replay, replayable
from penstock.snapshots.replay.selection import parse_target
from penstock.snapshots.replay.watching.debugger import Debugger, Quit
from penstock.storage import open_storage

LIMIT = 20
"""So many events of a step are shown."""


def replay_command(
    target: Annotated[
        str,
        typer.Argument(
            metavar="JOB[@EPOCH]",
            help="The job's storage, and an epoch: a number, latest, or next. Without an epoch: which ones can be replayed.",
        ),
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="The program's arguments; its options go behind --.")
    ] = None,
    app: Annotated[
        str | None,
        typer.Option(
            "--app",
            "--program",
            metavar="APP.py",
            help="The program. Without it: the one that wrote the epoch, if it is below the current folder, unchanged.",
        ),
    ] = None,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Run the program that the storage names, with its arguments; load pickled state."),
    ] = False,
    step: Annotated[str | None, typer.Option(help="Look closely at this step.")] = None,
    key: Annotated[str | None, typer.Option(help="Only what concerns this key: a Python literal, or text.")] = None,
    debug: Annotated[
        bool, typer.Option("--pdb", help="Stop in the function at the first record of --step or --key, and where it raises.")
    ] = False,
    at: Annotated[int, typer.Option(help="With --pdb: stop at this number of the step's records and timers, or after it.")] = 1,
    record: Annotated[str | None, typer.Option(metavar="FILE", help="Keep the step's part as a test case.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    limit: Annotated[int | None, typer.Option(help="How many records, timers and changes of a step to show; 0: all.")] = None,
    records: Annotated[int | None, typer.Option(help="With @next: how many records to read, at most.")] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Run a kept epoch again, from the snapshot before it and the same input, without touching the job.

    Exit code 1 if it fails, or comes out differently than it was committed.
    """
    with clean_errors(trace=trace):
        job, epoch = parse_target(target)
        if epoch is None:
            storage = open_storage(job)
            show_list(job_in(storage).name, replayable(storage), as_json=as_json)
            return
        if debug and as_json:
            raise ConfigError("--pdb and --json do not go together", hint="leave one of them out")
        close = step is not None or key is not None
        options: dict[str, Any] = {
            "step": step,
            "limit": (LIMIT if close else 1000 if as_json else 0) if limit is None else limit or None,
            "app": app,
            "arguments": arguments or None,
            "trust": trust,
            "records": records,
            "record": record,
        }
        if key is not None:
            options["key"] = key
        debugger = Debugger(at=at) if debug else None
        try:
            replayed = _run(job, epoch, options, debugger, as_json)
        except Quit:
            errors.print("ended in the debugger; the job is as it was")
            return
    if as_json:
        echo(json.dumps(replayed.to_json(), indent=1, ensure_ascii=False))
    else:
        show_replay(console_for(), replayed, step=step, key=key, trace=trace)
        if debugger is not None and not debugger.stopped:
            errors.print(_never_stopped(replayed, step, key), soft_wrap=True)
    if replayed.failure is not None or replayed.reproduced is False:
        raise typer.Exit(1)


def _run(job: str, epoch: int | str, options: dict[str, Any], debugger: Debugger | None, as_json: bool) -> Replay:
    with contextlib.ExitStack() as stack:
        if debugger is None and errors.is_terminal:
            stack.enter_context(errors.status(f"replaying epoch {epoch}"))
        if as_json:  # standard output is for the JSON alone
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        if debugger is not None:
            stack.callback(debugger.close)
        return replay(job, epoch, debugger=debugger, **options)


def _never_stopped(replayed: Replay, step: str | None, key: str | None) -> str:
    if step is None and key is None:
        names = ", ".join(one.step for one in replayed.steps.values() if one.function is not None)
        return f"nothing raised, so there was nothing to stop at; name a step to stop at its first record: --step {names}"
    return "no function of yours was called there, so there was nothing to stop in"
