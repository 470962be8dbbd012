"""The table, the JSON file, and the exit code."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table


@dataclass(slots=True)
class Report:
    """What a benchmark found. One mismatch voids it."""

    name: str
    ratios: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def verified(self) -> bool:
        return not self.problems

    def ratio(self, name: str, ours: float | None, theirs: float | None, digits: int = 3) -> None:
        """Left out when either side did not run."""
        if ours is not None and theirs:
            self.ratios[name] = round(ours / theirs, digits)

    def finish(self, table: Table, json_file: str | None) -> int:
        """Prints, writes, and returns the exit code."""
        console = Console(width=None if sys.stdout.isatty() else 140)
        console.print(table)
        for note in self.notes:
            console.print(f"note: {note}", highlight=False)
        if self.ratios:
            console.print("  ".join(f"{name}={value:g}" for name, value in self.ratios.items()), highlight=False)
        for problem in self.problems:
            console.print(f"VOID: {problem}", style="bold red", highlight=False, markup=False)
        if json_file:
            Path(json_file).parent.mkdir(parents=True, exist_ok=True)
            Path(json_file).write_text(json.dumps(self.as_json(), indent=2) + "\n")
        return 0 if self.verified else 1

    def as_json(self) -> dict[str, Any]:
        return {
            "benchmark": self.name,
            "ratios": self.ratios,
            "rates": self.rates,
            "verified": self.verified,
            "problems": self.problems,
            "notes": self.notes,
            "details": self.details,
            "machine": {
                "cores": os.cpu_count(),
                "python": platform.python_version(),
                "system": platform.platform(),
                "load": list(os.getloadavg()),
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
            },
        }


def table_of(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose first column is text and whose others are numbers, last one text again if it is called `note`."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 or column == "note" else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser with what all benchmarks take."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="also write the result to this file")
    return parser
