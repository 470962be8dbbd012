"""What a terminal is given: text, and no commands to it.

Names, keys, values and messages come from storages, which others may have written. Control characters in them could move the
cursor, hide lines or rename the window, and directional ones make a text look like another: they are shown, not sent.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""The text with control characters spelled out; tabs and line ends stay.

    >>> printable("a\x1b[2Jb\tc")
    'a\\x1b[2Jb\tc'
    """
    return _CONTROL.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x20 else f"\\u{code:04x}"  # JSON escapes the former, and knows only the latter form


def echo(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print text that may hold what a storage says."""
    typer.echo(printable(text), nl=nl, err=err)


class PrintableConsole(Console):
    """A console whose only control sequences are its own: no markup in what it is given, and no control characters."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or _CONTROL.search(segment.text) is None:
                yield segment
            else:
                yield segment._replace(text=printable(segment.text))


class PrintableFormatter(logging.Formatter):
    """Of log lines that go to a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
