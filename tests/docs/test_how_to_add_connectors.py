"""The source and the sink of the pages that say how to add one are exact, wherever the driver dies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import FileSink, GeneratorSource, StreamEnvironment, failpoints
from penstock.config import NO_RESTART
from penstock.connectors.files.reading.published import read_rows
from penstock.failpoints import arm
from tests.docs.test_blocks import ROOT, program_of
from tests.laws.test_atomic_epochs import _die
from tests.laws.trying import Crash

PLACES = (
    "source:planned",
    "task:read",
    "task:prepare",
    "epoch:ran",
    "manifest:before",
    "manifest:after",
    "sink:committed",
    "done:before",
)
COUNT = 20


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setattr(failpoints, "_act", _die)
    monkeypatch.chdir(tmp_path)
    return str(request.param)


def names_of(page: str) -> dict[str, Any]:
    """What the program of a page defines; it runs once meanwhile."""
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(program_of(ROOT / "docs" / "how-to-add" / page), page, "exec", dont_inherit=True), names)
    return names


def run_and_die(place: str, build: Callable[[StreamEnvironment], None]) -> None:
    """Run a job; die at a place, each time one passing later; then finish."""
    deaths = 0
    for passing in (1, 2, 3, 0):
        env = StreamEnvironment(
            "job",
            executor="inline",
            parallelism=1,
            storage="storage",
            local_dir="local",
            max_records_per_epoch=6,
            restart=NO_RESTART,
        )
        build(env)
        arm(f"{place}=crash@{passing}" if passing else "")
        try:
            env.execute()
        except Crash:
            deaths += 1
        finally:
            arm("")
    assert deaths > 1


def test_the_source_of_the_page_is_read_exactly_once(place: str) -> None:
    source = names_of("source.md")["CountdownSource"](COUNT)
    run_and_die(place, lambda env: env.from_source(source, name="in").sink_to(FileSink("out"), name="out"))
    assert [row["value"] for row in read_rows("out")] == list(range(COUNT, 0, -1))


def test_the_sink_of_the_page_publishes_exactly_once(place: str) -> None:
    sink = names_of("sink.md")["MailSink"]("letters")
    numbers = GeneratorSource(int, count=COUNT, partitions=1)
    run_and_die(place, lambda env: env.from_source(numbers, name="in").sink_to(sink, name="out"))
    mail = sorted(Path("letters").glob("*.json"), key=lambda path: int(path.stem))
    assert [number for path in mail for number in json.loads(path.read_text())] == list(range(COUNT))
