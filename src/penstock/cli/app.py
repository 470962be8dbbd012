"""The commands by name."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

import typer

import penstock
from penstock.cli.check import check_command
from penstock.cli.diff import diff_command
from penstock.cli.doctor import doctor_command
from penstock.cli.epochs import epochs_command
from penstock.cli.explain import explain_command
from penstock.cli.jobs import jobs_command
from penstock.cli.lineage import lineage_command
from penstock.cli.replay import replay_command
from penstock.cli.rescale import rescale_command
from penstock.cli.run import run_command
from penstock.cli.savepoint import savepoint_command
from penstock.cli.savepoint_rewrite import savepoint_rewrite_command
from penstock.cli.state import state_command
from penstock.cli.stop import stop_command

app = typer.Typer(
    name="penstock",
    help="Stateful stream processing in Python, on Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

# Options that are not ours are the program's.
_PROGRAM = {"ignore_unknown_options": True}

app.command("run", context_settings=_PROGRAM)(run_command)
app.command("explain", context_settings=_PROGRAM)(explain_command)
app.command("replay")(replay_command)
app.command("check", context_settings=_PROGRAM)(check_command)
app.command("jobs")(jobs_command)
app.command("epochs")(epochs_command)
app.command("stop")(stop_command)
app.command("lineage")(lineage_command)
app.command("rescale")(rescale_command)
app.command("savepoint")(savepoint_command)
app.command("savepoint-rewrite")(savepoint_rewrite_command)
app.command("state")(state_command)
app.command("diff")(diff_command)
app.command("doctor")(doctor_command)


@app.command("version")
def version_command() -> None:
    """The versions of Penstock and of what it stands on."""
    typer.echo(f"penstock {penstock.__version__}")
    typer.echo(f"python {platform.python_version()}")
    for package in ("pyspark", "pyarrow", "lmdb", "msgspec"):
        try:
            typer.echo(f"{package} {version(package)}")
        except PackageNotFoundError:
            typer.echo(f"{package} is not installed")


def main() -> None:
    app()
