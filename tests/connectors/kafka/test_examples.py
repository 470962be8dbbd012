"""The examples that need a broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from tests.connectors.kafka.topics import new_topic, put, values
from tests.servers.kafka import KafkaServer

EXAMPLES = Path(__file__).parents[3] / "examples" / "kafka"
NAMES = ["history_then_live", "sensor_windows", "topic_to_topic"]


def run(kafka: KafkaServer, name: str, *arguments: str, folder: Path) -> str:
    program = "import runpy, sys; from penstock.compile.in_process import RunOptions, applied\n"
    program += "with applied(RunOptions(settings={'executor': 'inline', 'parallelism': 2})):\n"
    program += f"    sys.argv[1:] = {list(arguments)!r}; runpy.run_path({str(EXAMPLES / name)!r}, run_name='__main__')\n"
    environment = {**os.environ, "PENSTOCK_KAFKA": kafka.bootstrap}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(NAMES)


def test_sensor_windows(kafka: KafkaServer, tmp_path: Path) -> None:
    topic = new_topic(kafka)
    put(kafka, topic, [{"sensor": f"s{n % 2}", "celsius": float(n), "at": n * 1000} for n in range(12)])
    printed = run(kafka, "sensor_windows.py", topic, "averages", folder=tmp_path)
    assert printed.startswith(" 0 s: s0 2.0 on average of 3\n 0 s: s1 2.0 on average of 2\n 5 s: s0 7.0 on average of 2\n")


def test_topic_to_topic_and_letters_sent_again(kafka: KafkaServer, tmp_path: Path) -> None:
    purchases, totals, mended = new_topic(kafka, 2), new_topic(kafka), new_topic(kafka)
    put(kafka, purchases, [{"customer": "ann", "cents": 100}, {"customer": "ann"}, {"customer": "bob", "cents": 7}])
    put(kafka, purchases, [{"customer": "ann", "cents": 11}], partition=1)
    printed = run(kafka, "topic_to_topic.py", purchases, totals, "letters", folder=tmp_path)
    assert printed == "3 purchases, 1 not understood\n"
    found = sorted(values(kafka, totals), key=lambda row: (row["customer"], row["cents"]))
    assert found[-2:] == [{"customer": "ann", "cents": 111}, {"customer": "bob", "cents": 7}]
    command = ["dead-letters", "replay", str(tmp_path / "letters"), "--bootstrap", kafka.bootstrap, "--topic", mended]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    assert values(kafka, mended) == [{"customer": "ann"}]


def test_history_then_live(kafka: KafkaServer, tmp_path: Path) -> None:
    """The topic also has what is in the archive, from before the day; nothing is counted twice."""
    hour = 3_600_000
    begin = 1_772_323_200_000  # 2026-03-01
    rows: list[dict[str, Any]] = [{"sensor": "a", "celsius": float(n), "at": begin + n * hour} for n in range(72)]
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / "first.json").write_text("".join(json.dumps(row) + "\n" for row in rows[:24]))
    topic = new_topic(kafka)
    for row in rows[12:]:
        put(kafka, topic, [row], timestamp=row["at"])
    printed = run(kafka, "history_then_live.py", "archive", topic, "2026-03-02", folder=tmp_path)
    assert printed == (
        "2026-03-01 a: 11.5 on average of 24\n2026-03-02 a: 35.5 on average of 24\n2026-03-03 a: 59.5 on average of 24\n"
    )


@pytest.mark.parametrize("name", NAMES)
def test_they_are_in_the_table(name: str) -> None:
    assert f"(kafka/{name}.py)" in (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
