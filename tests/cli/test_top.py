"""`penstock top`: on a terminal until Ctrl-C, elsewhere once."""

from __future__ import annotations

import sys
from pathlib import Path

from typer.testing import CliRunner

from penstock import StreamEnvironment
from penstock.cli.app import app
from tests.cli.terminal import Terminal


def shop(storage: Path, name: str = "shop") -> None:
    env = StreamEnvironment(name, executor="inline", parallelism=1, storage=str(storage), max_records_per_epoch=10)
    env.from_collection(range(30), name="orders").key_by(lambda n: n % 3).reduce(max, name="most").print(name="out")
    env.execute()


def test_once(tmp_path: Path) -> None:
    shop(tmp_path / "a")
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["top", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "1 jobs" in done.stdout
    assert "finished" in done.stdout


def test_what_cannot_be(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["top", str(tmp_path / "nowhere")])
    assert done.exit_code == 1
    assert "there is no folder" in done.output


def test_a_running_job_and_a_terminal(tmp_path: Path) -> None:
    looked: list[str] = []
    terminal: list[Terminal] = []

    def nap(n: int) -> int:
        if n == 25:
            command = [sys.executable, "-c", "from penstock.cli import main; main()", "top", str(tmp_path), "--every", "0.2"]
            top = Terminal(command, tmp_path)
            terminal.append(top)
            try:
                top.until(lambda: "orders" in top.text and "shop" in top.text, "the steps were shown")
                looked.append(top.text)
                top.press_ctrl_c()
                assert top.wait() == 0
            finally:
                top.close()
        return n

    env = StreamEnvironment("shop", executor="inline", parallelism=1, storage=str(tmp_path / "a"), max_records_per_epoch=10)
    env.from_collection(range(30), name="orders").map(nap, name="nap").print(name="out")
    env.execute()
    assert "running" in looked[0]
    assert "records/s" in looked[0]
