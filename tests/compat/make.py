"""Makes the savepoint of this version that later versions must restore: `python -m tests.compat.make [--again]`.

    <version>/savepoint/       of `program.py`, after `BEFORE` of its `EVENTS`
    <version>/storage/         of the job that it was made of
    <version>/expected.json    what the program had still to output, by a run without interruption

A folder here is of a released version, or of the one in the making: only that is ever made again. `0.1.0-crc32` is of the time
before 0.1.0 was released, when keys were grouped by key hash 1; `0.1.0-one-order` is of the time before the modules moved into
their rooms, with input that was planned and not read.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import penstock
from penstock import CollectSink, Job
from penstock.testing import execute_inline
from tests.compat.program import BEFORE, EVENTS, program

HERE = Path(__file__).parent


def output(**options: Any) -> Counter[str]:
    """What a run of the program publishes, each record as JSON text."""
    sink = CollectSink()
    try:
        execute_inline(program(sink), **options)
        return Counter(json.dumps(row, sort_keys=True) for row in sink.results())
    finally:
        sink.discard()


def make(version: str) -> Path:
    folder = HERE / version
    with tempfile.TemporaryDirectory() as scratch:
        before = output(storage=f"{scratch}/job", epochs=BEFORE // 20, keep=3)
        shutil.copytree(f"{scratch}/job", folder / "storage")
        info = Job(f"{scratch}/job").savepoint(folder / "savepoint")
    assert info.sources["events"].position["next"] == BEFORE
    whole = output(until=10**9)
    assert before <= whole
    expected = sorted((whole - before).elements())
    (folder / "expected.json").write_text("[\n" + ",\n".join(expected) + "\n]\n")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="instead of the one that is there")
    arguments = parser.parse_args()
    folder = HERE / penstock.__version__
    if folder.exists():
        if not arguments.again:
            parser.error(f"{folder} is there; --again makes it anew, which only the version in the making may")
        shutil.rmtree(folder)
    made = make(penstock.__version__)
    size = sum(file.stat().st_size for file in made.rglob("*") if file.is_file())
    print(f"{made}: {size:,} bytes, of {BEFORE} of {EVENTS} events")


if __name__ == "__main__":
    main()
