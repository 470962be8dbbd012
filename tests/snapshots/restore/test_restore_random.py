"""Random programs, cut anywhere: a job that goes on from a snapshot gives what the undisturbed one gives."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.snapshots.savepoint.savepoint import make_savepoint
from penstock.storage import open_storage
from penstock.testing import CollectSink, VirtualClock, execute_inline
from tests.runtime.random_programs import scripts
from tests.runtime.test_random_programs import START, by_key, expected, program


@settings(phases=[Phase.explicit, Phase.generate])
@given(
    script=scripts(max_size=8),
    cut=st.sampled_from([1, 2]),
    epochs=st.integers(1, 8),
    parallelism=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    snapshot=st.sampled_from(["savepoint", "savepoint twice", "fork", "time travel"]),
)
def test_going_on_from_a_snapshot(script: list[Any], cut: int, epochs: int, parallelism: tuple[int, int], snapshot: str) -> None:
    """All kinds of state, with and without ttl, timers of both times, keys too long for the store."""
    with tempfile.TemporaryDirectory() as folder:
        assert _in_two_parts(Path(folder), script, cut, epochs, parallelism, snapshot) == expected(script)


def _in_two_parts(
    folder: Path, script: list[Any], cut: int, epochs: int, parallelism: tuple[int, int], snapshot: str
) -> dict[Any, list[Any]]:
    before, aside, after = CollectSink(), CollectSink(), CollectSink()
    clock = VirtualClock(START)
    first: dict[str, Any] = {"storage": str(folder / "first"), "local_dir": str(folder / "local"), "keep": 1000}
    second = {**first, "storage": str(folder / "second")}
    ended = execute_inline(
        program(script, cut, before), clock=clock, until=100_000, epochs=epochs, parallelism=parallelism[0], **first
    )
    if not ended.finished:
        at = make_savepoint(open_storage(first["storage"]), to=str(folder / "savepoint"))
        source = {"fork": f"{first['storage']}@{at.epoch}", "time travel": f"@{at.epoch}"}.get(snapshot, at.uri)
        if snapshot == "savepoint twice":
            one_more = {**second, "parallelism": parallelism[1], "restore_from": source}
            execute_inline(program(script, cut, before), clock=clock, until=100_000, epochs=1, **one_more)
            source = make_savepoint(open_storage(second["storage"]), to=str(folder / "savepoint-2")).uri
            second = {**second, "storage": str(folder / "third")}
        if snapshot == "time travel":
            second = first
            execute_inline(program(script, cut, aside), clock=VirtualClock(clock.now), until=100_000, epochs=3, **first)
        execute_inline(
            program(script, cut, after), clock=clock, until=100_000, parallelism=parallelism[1], restore_from=source, **second
        )
    found = by_key([*before.results(), *after.results()])
    for sink in (before, aside, after):
        sink.discard()
    return found
