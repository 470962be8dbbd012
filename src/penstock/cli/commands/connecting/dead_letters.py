"""`penstock dead-letters`: what sources could not read, looked at and sent again."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table

from penstock.cli.options import Command
from penstock.cli.screen.printable import echo
from penstock.cli.screen.problems import clean_errors
from penstock.cli.screen.tables import console_for, print_table
from penstock.connectors import read_output
from penstock.connectors.kafka import replay_dead_letters
from penstock.connectors.protocol import RejectedRecord
from penstock.errors import ConfigError

dead_letters_app = typer.Typer(help="Look at the records that sources could not read, and send them again.", no_args_is_help=True)

Place = Annotated[str, typer.Argument(metavar="OUTPUT", help="Where a file sink has written them: a folder or URI.")]
Trace = Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")]

_SHOWN = 60


@dead_letters_app.command("list", cls=Command)
def list_command(letters: Place, trace: Trace = False) -> None:
    """List the dead letters that a file sink has written."""
    with clean_errors(trace=trace):
        table = Table()
        for header in ("when", "step", "where", "error", "value"):
            table.add_column(header)
        for letter in _read(letters):
            when = datetime.fromtimestamp(letter.rejected_ms / 1000, UTC)
            where = ", ".join(f"{name} {value}" for name, value in letter.position.items())
            value = "-" if letter.value is None else letter.value[:_SHOWN].decode("utf-8", "backslashreplace")
            table.add_row(f"{when:%Y-%m-%d %H:%M:%S}", letter.step, where, letter.error, value)
        print_table(console_for(), table, prose=("error", "value"))


@dead_letters_app.command("replay", cls=Command)
def replay_command(
    letters: Place,
    bootstrap: Annotated[str, typer.Option("--bootstrap", metavar="HOST:PORT", help="The Kafka cluster to send them to.")],
    topic: Annotated[str | None, typer.Option("--topic", help="Where to, if not to the topic that each came from.")] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Of the client; secrets as ${env:NAME}.")
    ] = None,
    trace: Trace = False,
) -> None:
    """Send dead letters to Kafka again, as the bytes they were; those that were sent before are not sent twice."""
    with clean_errors(trace=trace):
        sent = replay_dead_letters(_read(letters), bootstrap, place=letters, topic=topic, options=_options(option or []))
        echo(f"{sent} dead letter{' was' if sent == 1 else 's were'} sent to {topic or 'where they came from'}")


def _read(place: str) -> Iterator[RejectedRecord]:
    """In the order they were published."""
    for row in read_output(place):
        try:
            yield _letter(row)
        except (msgspec.ValidationError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"what is at {place} are not the dead letters of a source",
                detail=f"{error}\n{row!r:.200}",
                hint="give the folder of the file sink behind dead_letters()",
            ) from error


def _letter(row: Any) -> RejectedRecord:
    if not isinstance(row, dict):
        row = msgspec.to_builtins(row)
    return msgspec.convert(
        {**row, **{name: _bytes(row.get(name)) for name in ("key", "value")}, "headers": _headers(row)}, RejectedRecord
    )


def _headers(row: dict[str, Any]) -> list[tuple[str, bytes | None]]:
    return [(name, _bytes(value)) for name, value in row.get("headers") or ()]


def _bytes(value: Any) -> bytes | None:
    """JSON has them as base64."""
    return b64decode(value, validate=True) if isinstance(value, str) else value


def _options(given: list[str]) -> dict[str, str]:
    options = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise ConfigError(f"--option {each} is not NAME=VALUE")
        options[name] = value
    return options
