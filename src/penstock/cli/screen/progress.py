"""A running job on the screen: a live table on a terminal, a line a second elsewhere, a summary at the end.

Everything goes to standard error: standard output is the program's.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from penstock.cli.screen.showing import moment
from penstock.cli.screen.tables import console_for, print_table
from penstock.epochs.history import EpochRecord, JobResult
from penstock.epochs.rates import RecentBusy, RecentRate
from penstock.jobs.left_out import LeftOut
from penstock.running.signals import AT_ONCE, NOTICE, Interrupted

HISTORICAL_S = 86_400.0
"""Data that is older than this is history: how far event time is behind the clock says nothing, where it is does."""

SILENT_S = 5.0
"""When no epoch was committed for longer than that, it is shown when the last one was."""

WIDE = 140
"""Columns of a terminal that the table needs beside one another; on a narrower one its rows go below each other."""


class Progress:
    """A `RunListener` that shows what it hears."""

    def __init__(self, console: Console | None = None, *, summary: bool = True) -> None:
        self._console = console or console_for(stderr=True)
        self._summary = summary
        self._live: Live | None = None
        self._warnings = _Warnings(self)
        self._reset("")

    def _reset(self, name: str) -> None:
        self._name = name
        self._began = self._printed = self._heard = time.monotonic()
        self._rate, self._busy = RecentRate(), RecentBusy()
        self._unsaid = False
        self._seconds: deque[float] = deque(maxlen=10_000)
        self._last: EpochRecord | None = None
        self._epochs = self._records_in = self._records_out = self._hits = self._rebuilt = 0
        self._left_out = LeftOut()
        self._state: int | None = None
        self.restarts = 0
        self._stopping = False

    # --- what it hears -----------------------------------------------------------------------------------------------------

    def started(self, name: str, storage: str) -> None:
        self._reset(name)
        self._spinner = Spinner("dots", Text(f"{name}: starting"))
        logging.getLogger("penstock").addHandler(self._warnings)
        if self._console.is_terminal:
            self._live = Live(
                console=self._console,
                get_renderable=self._render,
                refresh_per_second=5,
                transient=True,
                redirect_stdout=sys.stdout.isatty(),  # what goes to a file or a pipe stays there
            )
            self._live.start()
        else:
            self.say(f"{name}: starting, storage {storage}")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the screen to a question."""
        if self._live is not None:
            self._live.stop()
        try:
            yield
        finally:
            if self._live is not None:
                self._live.start()

    def __call__(self, record: EpochRecord) -> None:
        now = self._heard = time.monotonic()
        self._last = record
        self._epochs += 1
        self._records_in += record.records_in
        self._records_out += record.records_out
        self._hits += record.local_hits
        self._rebuilt += record.rebuilt
        of_epoch = LeftOut(
            shed=record.shed,
            estimated=record.left_out.estimated,
            late=record.late,
            skipped=record.skipped,
            dead_letters=record.dead_letters,
        )
        self._left_out = self._left_out.plus(of_epoch)
        self._state = self._state if record.state_entries is None else record.state_entries
        self._seconds.append(record.seconds)
        self._rate.add(now, record.records_in, record.seconds)
        self._busy.add(record.run_seconds, record.busy)
        self._unsaid = True
        if self._live is None and now - self._printed >= 1:
            self._say_facts()

    def starting(self, lines: list[str]) -> None:
        for line in lines:
            self.say(f"{self._name}: {line}")

    def copied(self, done: int, total: int) -> None:
        self._spinner.update(text=Text(f"{self._name}: copying state, {size(done)} of {size(total)}"))
        if done == total and total:
            self.say(f"{self._name}: copied {size(total)} of state")

    def standing_by(self, name: str, text: str) -> None:
        self.say(f"{name}: {text}")

    def stopping(self) -> None:
        self._stopping = True

    def stopped(self, text: str) -> None:
        self.say(text)

    def ended(self, result: JobResult | None, error: BaseException | None) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        logging.getLogger("penstock").removeHandler(self._warnings)
        if isinstance(error, Interrupted):
            self.say(AT_ONCE)
        if result is not None:
            self.restarts = result.restarts
        if self._unsaid and (result is None or not self._console.is_terminal):  # how far it came is not lost with the table
            self._say_facts()
        if result is not None and self._summary:
            self._summarise(result)

    def _say_facts(self) -> None:
        self._printed, self._unsaid = time.monotonic(), False
        self.say(", ".join(f"{what} {value}" for what, value in self._facts()))

    def say(self, text: str, style: str = "") -> None:
        console = self._console if self._live is None else self._live.console
        console.print(Text(text, style=style), soft_wrap=True)

    # --- what it shows -----------------------------------------------------------------------------------------------------

    def _facts(self) -> list[tuple[str, str]]:
        record = self._last
        assert record is not None
        return [
            ("epoch", f"{record.epoch:,}"),
            ("records/s", f"{self._rate.at(time.monotonic()):,.0f}"),
            ("latency", duration(record.seconds)),
            *([("busiest step", busiest(self._busy.shares()))] if record.busy else []),
            event_time(record),
            ("state entries", "-" if self._state is None else f"{self._state:,}"),
            ("local hits", percent(self._hits, self._hits + self._rebuilt)),
            ("restarts", str(self.restarts)),
            ("records in", f"{self._records_in:,}"),
            ("records out", f"{self._records_out:,}"),
            *self._left_out.described().items(),
            *([("last epoch", f"{duration(silent)} ago")] if (silent := time.monotonic() - self._heard) > SILENT_S else []),
        ]

    def _render(self) -> RenderableType:
        shown = self._spinner if self._last is None else self._table()
        return Group(shown, Text(NOTICE)) if self._stopping else shown

    def _table(self) -> Table:
        table = Table(title=f"{self._name}, {duration(time.monotonic() - self._began)}", title_justify="left", expand=False)
        facts = self._facts()
        if self._console.width < WIDE:
            table.show_header = False
            for what, value in facts:
                table.add_row(what, Text(value, justify="right"))
            return table
        for what, _ in facts:
            table.add_column(what, justify="right", no_wrap=True)
        table.add_row(*(value for _, value in facts))
        return table

    def _summarise(self, result: JobResult) -> None:
        took = time.monotonic() - self._began
        seconds = sorted(self._seconds)
        rows = dict(result.rows())
        storage = rows.pop("storage")
        rows["time"] = f"{duration(took)}, {result.records_in / max(took, 0.001):,.0f} records/s from start to end"
        rows["latency"] = f"median {duration(at(seconds, 0.5))}, 99% within {duration(at(seconds, 0.99))}" if seconds else "-"
        rows["local hits"] = percent(self._hits, self._hits + self._rebuilt)
        rows["storage"] = storage
        table = Table(title=f"job {result.name}", title_justify="left", show_header=False)
        for what, value in rows.items():
            table.add_row(what, Text(value))
        print_table(self._console, table)


def event_time(record: EpochRecord) -> tuple[str, str]:
    """How far event time is behind the clock; of old data (and of times that are no dates), where it is. Pure."""
    if record.watermark_ms is None:
        return "watermark lag", "-"
    lag = (record.committed_ms - record.watermark_ms) / 1000
    return ("event time", moment(record.watermark_ms)) if abs(lag) > HISTORICAL_S else ("watermark lag", duration(lag))


def busiest(busy: dict[str, float]) -> str:
    """The busiest step, and how busy it was: "tax 83%"."""
    step = max(busy, key=busy.__getitem__)
    return f"{step} {busy[step]:.0%}"


class _Warnings(logging.Handler):
    """Shows the engine's warnings where they do not tear the table, and counts restarts."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.WARNING)
        self._progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if "trying again" in message:
            self._progress.restarts += 1
        self._progress.say(f"warning: {message}", "yellow")


def duration(seconds: float) -> str:
    """For people: "12 ms", "3.4 s", "5.0 min", "2.0 h", "9.1 d"."""
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    for unit, size, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < limit:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86_400:,.1f} d"


def size(count: int) -> str:
    """For people: "812 B", "3.4 KB", "5.0 MB", "2.0 GB"."""
    if count < 1000:
        return f"{count} B"
    for unit, of in (("KB", 10**3), ("MB", 10**6)):
        if count < 1000 * of:
            return f"{count / of:.1f} {unit}"
    return f"{count / 10**9:,.1f} GB"


def percent(part: int, whole: int) -> str:
    return "-" if not whole else f"{100 * part / whole:.0f}%"


def at(ordered: list[float], share: float) -> float:
    """The value below which this share of a sorted list lies."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
