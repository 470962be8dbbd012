"""The commands by name."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

import penstock
from penstock.cli.commands.check import check_command
from penstock.cli.commands.clean import clean_command
from penstock.cli.commands.connecting.connectors import connectors_command
from penstock.cli.commands.connecting.dead_letters import dead_letters_app
from penstock.cli.commands.diff import diff_command
from penstock.cli.commands.doctor import doctor_command
from penstock.cli.commands.epochs import epochs_command
from penstock.cli.commands.explain import explain_command
from penstock.cli.commands.jobs import jobs_command
from penstock.cli.commands.lineage import lineage_command
from penstock.cli.commands.live.top import top_command
from penstock.cli.commands.replay import replay_command
from penstock.cli.commands.rescale import rescale_command
from penstock.cli.commands.run import run_command
from penstock.cli.commands.savepoint import savepoint_command
from penstock.cli.commands.savepoint_rewrite import savepoint_rewrite_command
from penstock.cli.commands.serve import serve_command
from penstock.cli.commands.state import state_command
from penstock.cli.commands.stop import stop_command
from penstock.cli.options import Command, ProgramCommand
from penstock.cli.screen.printable import PrintableFormatter, echo

app = typer.Typer(
    name="penstock",
    help="Stateful stream processing in Python, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_COMMANDS: dict[str, Callable[..., None]] = {
    "run": run_command,
    "explain": explain_command,
    "replay": replay_command,
    "check": check_command,
    "jobs": jobs_command,
    "top": top_command,
    "epochs": epochs_command,
    "stop": stop_command,
    "lineage": lineage_command,
    "rescale": rescale_command,
    "savepoint": savepoint_command,
    "savepoint-rewrite": savepoint_rewrite_command,
    "state": state_command,
    "serve": serve_command,
    "diff": diff_command,
    "connectors": connectors_command,
    "clean": clean_command,
    "doctor": doctor_command,
}

_RUN_A_PROGRAM = ("run", "explain", "check")

for _name, _function in _COMMANDS.items():
    app.command(_name, cls=ProgramCommand if _name in _RUN_A_PROGRAM else Command)(_function)


app.add_typer(dead_letters_app, name="dead-letters")


def _show_version(wanted: bool) -> None:
    if wanted:
        echo(f"penstock {penstock.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Stateful stream processing in Python, on Spark."""
    if logging.lastResort is not None:  # what is logged, and nobody handles, is written to the terminal
        logging.lastResort.setFormatter(PrintableFormatter())


@app.command("version", cls=Command)
def version_command() -> None:
    """The versions of Penstock and of what it stands on."""
    echo(f"penstock {penstock.__version__}")
    echo(f"python {platform.python_version()}")
    for package in ("pyspark", "pyarrow", "lmdb", "msgspec"):
        try:
            echo(f"{package} {version(package)}")
        except PackageNotFoundError:
            echo(f"{package} is not installed")


def main() -> None:
    app()
