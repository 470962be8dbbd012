"""Tables on terminals of any width, and in pipes.

- Off a terminal nothing is wrapped: a row is as long as it is, so that `grep` and `cut` find whole paths and times.
- On a terminal names, paths and times are not broken, only prose is. A table that does not fit loses its frame, and if that is
  not enough it becomes a list: a line for each cell.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Collection

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.screen.printable import PrintableConsole

WIDEST = 10_000
"""Columns of a console that wraps nothing."""

PROSE = 24
"""A column of prose can be read at this width."""


def console_for(*, stderr: bool = False) -> Console:
    """Standard output, or standard error, as wide as the terminal; as wide as need be where there is none."""
    if not stderr and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that is no UTF-8 is shown too
    console = PrintableConsole(stderr=stderr)
    return console if console.is_terminal else PrintableConsole(stderr=stderr, width=WIDEST)


def print_table(console: Console, table: Table, *, prose: Collection[str] = ()) -> None:
    """`prose`: the columns, by header, whose words may go to the next line."""
    if table.title:  # by itself: as part of the table it would be wrapped to its width
        console.print(_text(table.title), style="italic", soft_wrap=True)
        table.title = None
    width = console.width if console.is_terminal else WIDEST
    wordy = [_plain(column.header) in prose for column in table.columns]
    if _least(table, wordy) + 3 * len(wordy) + 1 > width:
        for column in table.columns:
            column.header = _plain(column.header).replace(" ", "\n")
        if _least(table, wordy) + 2 * (len(wordy) - 1) > width:
            _print_list(console, table)
            return
        table.box, table.pad_edge = None, False
    for column, words in zip(table.columns, wordy, strict=True):
        column.no_wrap = not words
        column.overflow = "fold"
    console.print(table)


def _least(table: Table, wordy: list[bool]) -> int:
    """The narrowest that the columns can be."""
    widths = [_width(column.header, column.footer, *column.cells) for column in table.columns]
    return sum(min(size, PROSE) if words else size for size, words in zip(widths, wordy, strict=True))


def _print_list(console: Console, table: Table) -> None:
    """Each row as lines of `header value`; the terminal breaks what is longer than it is."""
    headers = [_plain(column.header).replace("\n", " ") for column in table.columns]
    if not table.show_header:
        for name, value in zip(*(list(column.cells) for column in table.columns), strict=True):
            console.print(Text.assemble((_plain(name), "bold"), "  ", _text(value)), soft_wrap=True)
        return
    wide = max(map(cell_len, headers), default=0)
    for number, row in enumerate(zip(*(list(column.cells) for column in table.columns), strict=True)):
        if number:
            console.print()
        for name, value in zip(headers, row, strict=True):
            if _plain(value):
                label = name + " " * (wide - cell_len(name))
                console.print(Text.assemble((label, "bold"), "  ", _text(value)), soft_wrap=True)


def _width(*cells: RenderableType) -> int:
    return max((cell_len(line) for cell in cells for line in _plain(cell).splitlines()), default=0)


def _text(cell: RenderableType) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))


def _plain(cell: RenderableType) -> str:
    return _text(cell).plain
