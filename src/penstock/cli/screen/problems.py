"""Errors as people should see them: what, detail, hint; a traceback only when asked for. Secrets are masked."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

import typer
from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from penstock.cli.screen.tables import console_for
from penstock.diagnosis.redaction import redact_text
from penstock.errors import PenstockError

errors = console_for(stderr=True)


@contextlib.contextmanager
def clean_errors(*, trace: bool = False) -> Iterator[None]:
    """An error of Penstock becomes a panel and exit code 1."""
    try:
        yield
    except PenstockError as error:
        show_problem(error, trace=trace)
        raise typer.Exit(1) from None


def show_problem(error: PenstockError, *, trace: bool = False) -> None:
    if trace:
        errors.print(Text(redact_text("".join(traceback.format_exception(error)))), soft_wrap=True)
    parts = [Text(redact_text(error.what), style="bold")]
    if error.detail:
        parts.append(Text(redact_text(error.detail)))
    parts += [Text(redact_text(note)) for note in getattr(error, "__notes__", ())]  # among them the function's traceback
    if error.hint:
        parts.append(Text(f"hint: {redact_text(error.hint)}", style="green"))
    if errors.is_terminal:
        errors.print(Panel(Group(*parts), title=_title(error), title_align="left", border_style="red"))
    else:  # a log: one thing per line, nothing cut
        errors.print(Text(f"{_title(error)}: ") + parts[0], soft_wrap=True)
        for part in parts[1:]:
            errors.print(Text("  ") + Text(part.plain.replace("\n", "\n  ")), soft_wrap=True)


def _title(error: PenstockError) -> str:
    """ "plan error" for a PlanError."""
    name = type(error).__name__
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()
    return words.removeprefix("penstock ")
