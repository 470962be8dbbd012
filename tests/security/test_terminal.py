"""A terminal is given text: control characters in names, keys, values and messages are shown, not sent."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

from penstock import StreamEnvironment, ValueState
from penstock.cli.screen.printable import PrintableConsole, PrintableFormatter, printable
from penstock.cli.screen.tables import print_table
from penstock.ids import Epoch, JobId
from penstock.jobs.lineage import Note
from penstock.storage.sealed import seal
from tests.security.hostile import ESCAPES, Keeping, forge_document, forge_manifest, penstock

FORBIDDEN = set("\x1b\x07\x9b\u202e")


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job all of whose names and values are escapes."""
    storage = tmp_path_factory.mktemp("jobs") / "job"
    env = StreamEnvironment(f"job{ESCAPES.replace('/', '')}", executor="inline", parallelism=1, storage=str(storage))
    stream = env.from_collection([ESCAPES, "b"], name="in").key_by(lambda text: text, key_type=str)
    stream.process(Keeping(ValueState(str)), name="step").print(name="out")
    env.execute(until_idle=True)

    def renamed(value: Any) -> Any:
        """With escapes behind the names that a program may not give."""
        if isinstance(value, dict):
            return {renamed(name): renamed(item) for name, item in value.items()}
        if isinstance(value, list):
            return [renamed(item) for item in value]
        return f"{value}{ESCAPES}" if value in ("in", "step", "out", "held") else value

    def change(whole: dict[str, Any]) -> None:
        whole.update(renamed({name: whole[name] for name in ("state", "sources", "watermarks", "read", "metrics")}))
        whole["restored"] = {"source": f"file:///{ESCAPES}", "identity": "x", "epoch": 1, "at": 1}

    forge_manifest(storage, change)
    for kind in ("savepoint", "restore", "fork"):
        note = Note(
            kind=kind, identity=kind, made_ms=0, place=ESCAPES, epoch=Epoch(1), job=JobId(ESCAPES), name=ESCAPES, home=ESCAPES
        )
        (storage / "lineage").mkdir(exist_ok=True)
        (storage / "lineage" / f"{kind}-{kind}.json").write_bytes(seal(note))
    return storage


STEP, STATE = f"step{ESCAPES}", f"held{ESCAPES}"


@pytest.mark.parametrize(
    "arguments",
    [
        ["jobs", "{root}"],
        ["top", "{root}", "--once"],
        ["jobs", "{root}", "--json"],
        ["epochs", "{job}"],
        ["state", "{job}"],
        ["state", "{job}", "--json"],
        ["state", "{job}", STEP, STATE],
        ["state", "{job}", STEP, STATE, "--json"],
        ["state", "{job}", STEP, STATE, ESCAPES],
        ["state", "{job}", "nothing", "there"],
        ["diff", "{job}", "{job}@1"],
        ["diff", "{job}", "{job}@1", "--json"],
        ["lineage", "{job}"],
        ["lineage", "{job}", "--json"],
        ["replay", "{job}"],
        ["replay", "{job}@99"],
        ["replay", "{job}@latest"],
        ["stop", "{job}", "--timeout", "0"],
        ["doctor", "{job}"],
    ],
)
def test_no_command_sends_what_a_storage_says(storage: Path, arguments: list[str]) -> None:
    done = penstock(*(text.replace("{job}", str(storage)).replace("{root}", str(storage.parent)) for text in arguments))
    assert not FORBIDDEN & set(done.output), done.output
    if "--json" in arguments and done.exit_code == 0:
        assert json.loads(done.stdout)


def test_errors_show_what_they_quote(storage: Path, tmp_path: Path) -> None:
    forge_document(storage / "job.json", job=f"x{ESCAPES}")
    try:
        done = penstock("lineage", storage)
        assert done.exit_code == 1
        assert not FORBIDDEN & set(done.output)
        assert "holds an impossible job id" in done.output
    finally:
        forge_document(storage / "job.json", job="x" * 32)


def test_a_console_sends_no_sequences_but_its_own() -> None:
    file = io.StringIO()
    console = PrintableConsole(file=file, force_terminal=True, color_system="truecolor", width=200)
    table = Table(title=f"title{ESCAPES}")
    table.add_column(f"head{ESCAPES}")
    table.add_row(Text(f"cell{ESCAPES}", "red"))
    table.add_row(f"text{ESCAPES}")
    print_table(console, table)
    console.print(f"[bold]not bold[/bold] {ESCAPES}")
    shown = file.getvalue()
    assert "\x1b[2J" not in shown
    assert not {"\x07", "\x9b", "\u202e"} & set(shown)
    assert "\x1b[31m" in shown  # its own
    assert "[bold]not bold[/bold]" in shown
    assert "\\x1b[2J" in shown


def test_what_is_logged_is_text() -> None:
    line = logging.LogRecord("penstock", logging.WARNING, "", 0, "%s", (ESCAPES,), None)
    assert not FORBIDDEN & set(PrintableFormatter().format(line))


def test_text_that_is_printable_stays() -> None:
    text = "Zürich → 東京\t😀\n"
    assert printable(text) == text
