"""`penstock run`: a program, with settings from the command line and its progress on the screen."""

from __future__ import annotations

import os
import runpy
import shlex
import sys
import traceback
from datetime import timedelta
from types import TracebackType
from typing import Annotated, Any

import typer

from penstock.cli.screen.printable import echo
from penstock.cli.screen.problems import clean_errors, errors
from penstock.cli.screen.progress import Progress
from penstock.compile import in_process
from penstock.compile.in_process import RunOptions, run_program
from penstock.diagnosis.invocation import Invocation
from penstock.diagnosis.redaction import redact_arguments
from penstock.diagnosis.tracebacks import showing_whole
from penstock.errors import PenstockError
from penstock.running.signals import INTERRUPTED, Interrupted


def run_command(
    program: Annotated[str, typer.Argument(metavar="APP.py", help="The program.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGS]...", help="The program's own arguments; its options go behind --."),
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="Where state and progress are kept: a folder, or s3://bucket/prefix.")
    ] = None,
    parallelism: Annotated[int | None, typer.Option(help="Partitions of each stage.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master, for example local[4,4] or spark://host:7077.")] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when there is nothing left to read.")] = False,
    drain: Annotated[
        bool,
        typer.Option("--drain", help="With --until-idle: then end all time. Windows close, timers fire; the job cannot go on."),
    ] = False,
    name: Annotated[str | None, typer.Option(help="The job's name.")] = None,
    executor: Annotated[str | None, typer.Option(help="spark, or inline: in this process, without Spark.")] = None,
    guarantee: Annotated[str | None, typer.Option(help="exactly-once, at-least-once or at-most-once.")] = None,
    state_store: Annotated[
        str | None, typer.Option(help="Where tasks keep state on their host: memory, lmdb or rocksdb.")
    ] = None,
    allow_dropped_state: Annotated[
        bool, typer.Option("--allow-dropped-state", help="Lose, for good, the state that the program no longer claims.")
    ] = False,
    restore_from: Annotated[
        str | None,
        typer.Option("--from", metavar="SNAPSHOT", help="Start from a savepoint, from JOB@EPOCH or JOB@latest, or from latest."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Start from the snapshot once more, though the job has gone on since.")
    ] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Load pickled state from another place: it may run code that comes with it.")
    ] = False,
    fall_back: Annotated[
        bool, typer.Option("--fall-back", help="If the newest epoch is damaged, start from the newest whole one.")
    ] = False,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait until the job's driver dies or hangs, then take over.")
    ] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take the job over from a driver that runs it: that one fails.")
    ] = False,
    lease: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long a driver may give no sign of life; 10 unless told.")
    ] = None,
    repeat_output: Annotated[
        bool, typer.Option("--repeat-output", help="Going back to an earlier epoch: publish again what cannot be taken back.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Going back: replace the file output published since then, at once, when caught up."),
    ] = False,
    mirror: Annotated[
        str | None, typer.Option(metavar="URI", help="A second place, to which committed epochs are copied.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Start from a mirror though the storage that it is of is driven.")
    ] = False,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Run a program. What is given here wins over the program's own settings."""
    given: dict[str, Any] = {
        "storage": storage,
        "parallelism": parallelism,
        "master": master,
        "until_idle": until_idle or None,
        "drain": drain or None,
        "name": name,
        "executor": executor,
        "guarantee": guarantee,
        "state_store": state_store,
        "allow_dropped_state": allow_dropped_state or None,
        "fall_back": fall_back or None,
        "repeat_output": repeat_output or None,
        "repair": repair or None,
        "restore_from": restore_from,
        "restore_again": again or None,
        "trust": trust or None,
        "standby": standby or None,
        "take_over": take_over or None,
        "mirror": mirror,
        "force": force or None,
        "lease": None if lease is None else timedelta(seconds=lease),
    }
    progress = _Watched()
    options = RunOptions(
        settings={setting: value for setting, value in given.items() if value is not None},
        listeners=(progress,),
        invocation=Invocation(
            command=lambda option: command_line(program, arguments or [], given, option),
            confirm=progress.confirm if sys.stdin.isatty() and errors.is_terminal else None,
        ),
    )
    with showing_whole(trace), clean_errors(trace=trace):
        _run(program, arguments or [], options)
    if not progress.runs:
        errors.print(f"{program} ended without executing anything: does it call env.execute()?", soft_wrap=True)


def command_line(program: str, arguments: list[str], given: dict[str, Any], option: str) -> str:
    """The command as it was given, with one more option, and secrets masked. For people, and for a shell."""
    words = ["penstock", "run", program]
    for setting, value in given.items():
        flag = _OPTIONS.get(setting, f"--{setting.replace('_', '-')}")
        if value is True:
            words.append(flag)
        elif value is not None:
            words += [flag, f"{value.total_seconds():g}" if isinstance(value, timedelta) else str(value)]
    if option not in words:
        words.append(option)
    return shlex.join([*words, *(["--", *redact_arguments(arguments)] if arguments else [])])


_OPTIONS = {"restore_from": "--from", "restore_again": "--again"}


class _Watched(Progress):
    """Progress that also knows whether there was any run."""

    runs = 0

    def started(self, name: str, storage: str) -> None:
        self.runs += 1
        super().started(name, storage)

    def standing_by(self, name: str, text: str) -> None:
        self.runs += 1
        super().standing_by(name, text)

    def confirm(self, refusal: PenstockError, question: str) -> bool:
        """Somebody is at the terminal: let them decide."""
        with self.paused():
            errors.print(f"{refusal.what}:\n{refusal.detail}", soft_wrap=True)
            return typer.confirm(question, err=True)


def _run(program: str, arguments: list[str], options: RunOptions) -> None:
    try:
        run_program(program, arguments, options)
    except PenstockError:
        raise
    except Interrupted as interrupted:  # it has been said
        raise typer.Exit(interrupted.code if isinstance(interrupted.code, int) else INTERRUPTED) from None
    except KeyboardInterrupt:
        errors.print("interrupted; what was committed stays committed")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        error.__traceback__ = _users_part(error.__traceback__)
        echo("".join(traceback.format_exception(error)), nl=False, err=True)
        raise typer.Exit(1) from None


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames between the command line and the program."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    ours = (here, os.path.abspath(in_process.__file__), os.path.abspath(runpy.__file__), "<frozen runpy>")
    kept = trace
    while kept is not None and kept.tb_frame.f_code.co_filename.startswith(ours):
        kept = kept.tb_next
    return kept or trace
