"""What the commands print in a pipe, and on terminals of 40, 80 and 200 columns: paths and times stay whole."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table
from typer.testing import CliRunner

from penstock.cli import app
from penstock.cli.screen import tables
from penstock.cli.screen.printable import PrintableConsole
from penstock.cli.screen.tables import print_table

GOLDEN = Path(__file__).parent / "golden"

PROGRAM = """
from penstock import *

env = StreamEnvironment("shop", executor="inline", parallelism=2, max_records_per_epoch=20)
source = GeneratorSource(lambda n: {"who": f"customer-{n % 7}", "cents": n, "time": 1_760_000_000_000 + n * 1000}, count=100)
orders = env.from_source(source, watermarks=Watermarks.bounded(seconds=1, timestamp="time"), name="orders").key_by("who")
orders.sum("cents", name="totals").sink_to(FileSink("out/totals"), name="totals-out")
windows = orders.window(TumblingWindows(seconds=10)).aggregate(count(), name="per-10-seconds")
windows.sink_to(FileSink("out/windows"), name="windows-out")
env.execute()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A job with a long path: the current folder, as long as these tests run."""
    folder = tmp_path_factory.mktemp("widths")
    (folder / "shop.py").write_text(PROGRAM)
    before = os.getcwd()
    os.chdir(folder)
    try:
        done = CliRunner().invoke(app, ["run", "shop.py", "--storage", "jobs/of-the-european-branch/and-its-shops/shop"])
        assert done.exit_code == 0, done.output
        yield folder
    finally:
        os.chdir(before)


JOB = "jobs/of-the-european-branch/and-its-shops/shop"


def printed(*arguments: str) -> str:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(params=[40, 80, 200, None], ids=lambda width: f"{width} columns" if width else "pipe")
def width(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int | None:
    if request.param is not None:
        terminal = partial(PrintableConsole, force_terminal=True, color_system=None, width=request.param)
        monkeypatch.setattr(tables, "PrintableConsole", terminal)
    return request.param  # type: ignore[no-any-return]


def commands(folder: Path) -> dict[str, tuple[list[str], list[str]]]:
    """By name: the arguments, and what must be in one piece."""
    job, when = str(folder / JOB), "2025-10-09 08:53:36"
    return {
        "jobs": (["jobs"], [job, "finished"]),
        "epochs": (["epochs", JOB], [when, "shared state", "finished"]),
        "state": (["state", f"{JOB}@4"], ["per-10-seconds", "2025-10-09 08:54:12.999Z"]),
        "state-step": (["state", JOB, "totals", "result"], ["customer-6"]),
        "state-key": (["state", JOB, "totals", "result", "customer-6"], ["customer-6"]),
        "diff": (["diff", f"{JOB}@3", f"{JOB}@4"], [f"file://{job}@3", "unchanged", "totals"]),
        "lineage": (["lineage", JOB], [f"shop, file://{job}: epoch 7"]),
        "check": (["check", "shop.py", "--against", JOB], [f"against file://{job}, epoch 7", "compatible"]),
        "explain": (["explain", "shop.py"], ["per-10-seconds"]),
        "replay": (["replay", f"{JOB}@4"], ["per-10-seconds", "state changed", "reproduced exactly"]),
        "replay-step": (["replay", f"{JOB}@4", "--step", "totals"], ["customer-6", "2025-10-09 08:54:12.000"]),
        "doctor": (["doctor", "--no-spark"], ["local state"]),
    }


@pytest.mark.parametrize("name", list(commands(Path())))
def test_nothing_is_broken(place: Path, width: int | None, name: str) -> None:
    arguments, whole = commands(place)[name]
    text = printed(*arguments)
    flat = re.sub(r"\s*\n\s*", " ", text) if width is not None else text  # words of prose, and of headers, may be on two lines
    for part in whole:
        found = text if "/" in part or "-" in part else flat
        words = part.split() if width is not None and "/" not in part and "-" not in part else [part]
        assert all(word in found for word in words), f"{part!r} is not whole in\n{text}"
    framed = [line for line in text.splitlines() if line.startswith(("│", "┃", "┏"))]
    assert not width or all(len(line) <= width for line in framed)


def normal(text: str, place: Path) -> str:
    """Without what differs from run to run."""
    text = text.replace(str(place), "/work/a-folder-of-tests")
    text = re.sub(r"\d+(\.\d)? (ms|s|min|h) ago", "… ago", text)
    text = re.sub(r"[a-zA-Z][\w.-]*:\d+(?=\s+(│|/|$))", "host:1", re.sub(r"(?m)(?<=^driver     )\S+", "host:1", text))
    text = re.sub(r"\d+(\.\d)? [KM]?B", "…B", text)
    text = re.sub(r"━{2,}", "━", re.sub(r"─{2,}", "─", re.sub(r" {2,}", "  ", text)))
    text = re.sub(r" +(?=[│┃])", " ", text)  # a column is as wide as what was in it
    return re.sub(r"(?m)[ \t]+$", "", text)


@pytest.mark.parametrize("name", ["jobs", "epochs"])
def test_as_the_golden_files(place: Path, width: int | None, name: str) -> None:
    text = normal(printed(*commands(place)[name][0]), place)
    path = GOLDEN / f"{name}-{width or 'pipe'}.txt"
    if os.environ.get("PENSTOCK_WRITE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def shown(width: int | None, make: Callable[[], Table], **options: object) -> str:
    console = Console(file=StringIO(), width=width or 80, force_terminal=width is not None, color_system=None)
    if width is None:
        console = Console(file=StringIO(), width=tables.WIDEST)
    print_table(console, make(), **options)  # type: ignore[arg-type]
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_frame_then_no_frame_then_a_list() -> None:
    def make() -> Table:
        table = Table("job", "last commit", "why")
        table.add_row("shop", "2025-10-09 08:53:38", "it was stopped because somebody asked for it")
        return table

    assert "━" in shown(100, make)
    assert "━" in shown(66, make, prose=["why"])  # the prose goes to a second line
    bare = shown(76, make)
    assert "━" not in bare
    assert [line.split() for line in bare.splitlines()[:2]] == [["last"], ["job", "commit", "why"]]
    assert shown(40, make).splitlines() == [
        "job          shop",
        "last commit  2025-10-09 08:53:38",
        "why          it was stopped because somebody asked for it",
    ]
    assert "it was stopped because somebody asked for it" in shown(None, make, prose=["why"])
