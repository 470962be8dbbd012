"""Errors as people should see them: what, detail, hint; a traceback only when asked for."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator

import typer
from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from penstock.errors import PenstockError

errors = Console(stderr=True, highlight=False)


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
        errors.print(Text("".join(traceback.format_exception(error))), soft_wrap=True)
    parts = [Text(error.what, style="bold")]
    if error.detail:
        parts.append(Text(error.detail))
    # Among the notes is the worker's traceback.
    parts += [Text(note) for note in getattr(error, "__notes__", ()) if trace or "Traceback (most recent" not in note]
    if error.hint:
        parts.append(Text(f"hint: {error.hint}", style="green"))
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
