"""Another number of key groups, and differences: what a state holds, not how it came there."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import FileSink, StreamEnvironment, snapshots
from penstock.errors import ConfigError, NotFoundError
from penstock.ids import Epoch, JobId
from penstock.jobs.left_out import LeftOut
from penstock.jobs.manifest import StateInfo
from penstock.snapshots.savepoint.format import SavedJob, SavepointWriter
from penstock.snapshots.view.content import SavepointContent
from penstock.state.encoding.keys import encode_key, key_codec
from penstock.state.entries.store_keys import sortable_time
from penstock.state.key_groups import CRC32, NEW_JOBS, KeyGroups
from penstock.storage import open_storage
from penstock.testing import End, ScriptedSource, execute_inline
from penstock.windows.columnar.chunks import Chunk, KeyIndex, dump_chunk, read_stored
from penstock.windows.columnar.vectors import objects
from tests.snapshots.shops import orders, program, run_some, save

WHAT = "TumblingWindows(1 h); key k; count(); sum('a')"
KEYS = st.one_of(st.integers(0, 200), st.text(max_size=3), st.tuples(st.integers(0, 3), st.text(max_size=2)))
SUMS = st.one_of(st.integers(-5, 5), st.floats(-2, 2), st.just(2**80))
ROWS = st.lists(st.tuples(KEYS, st.integers(1, 5), SUMS), min_size=1, max_size=12, unique_by=lambda row: encode_key(row[0]))


def written(folder: Path, states: list[tuple[StateInfo, dict[tuple[int, bytes], bytes]]], groups: KeyGroups) -> str:
    with SavepointWriter(open_storage(str(folder)), key_groups=groups) as savepoint:
        for info, entries in states:
            writer = savepoint.state(info)
            for (group, key), value in sorted(entries.items()):
                writer.group(group, [key], [value])
        return savepoint.finish(job=SavedJob(JobId("j"), "j"), epoch=Epoch(1)).uri


def stored(rows: list[tuple[Any, int, Any]]) -> bytes:
    index = KeyIndex(key_codec())
    keys = index.numbers([encode_key(key) for key, _, _ in rows])
    kinds = {type(total) for _, _, total in rows}
    totals = [total for _, _, total in rows]
    small = kinds <= {int} and max(map(abs, totals)) < 2**63
    vector = np.asarray(totals, dtype=np.int64) if small else np.asarray(totals) if kinds == {float} else objects(totals)
    counts = np.asarray([n for _, n, _ in rows])
    return dump_chunk(Chunk(keys, [[counts], [counts, vector]]), index, WHAT)


def logical(uri: str) -> dict[tuple[str, Any], Any]:
    """What a savepoint holds: of chunks, every row."""
    content = SavepointContent(open_storage(uri))
    found: Counter[Any] = Counter()
    for saved in content.info.states:
        for group, keys, values in content.entries(saved.number):
            for key, value in zip(keys, values, strict=True):
                if saved.info.kind != "slices":
                    found[saved.info.name, key, value] += 1
                    continue
                chunk = read_stored(value, "x")
                flat = [(kind, _unpacked(kind, data)) for vectors in chunk.vectors for kind, data in vectors]
                for row, one in enumerate(chunk.keys):
                    assert content.info.key_groups.of(one) == group
                    found["slices", key[:8], one, *((kind, values[row]) for kind, values in flat)] += 1
    return dict(found)


def _unpacked(kind: str, data: bytes) -> list[Any]:
    return msgspec.msgpack.decode(data) if kind == "any" else [data[n : n + 8] for n in range(0, len(data), 8)]


@given(
    keys=st.lists(KEYS, max_size=10, unique_by=encode_key),
    chunks=st.lists(st.tuples(st.integers(0, 2), ROWS), max_size=3),
    path=st.sampled_from([(256,), (7,), (256, 128), (None,)]),
)
def test_regrouping_is_the_identity_on_what_is_held(
    keys: list[Any],
    chunks: list[tuple[int, list[tuple[Any, int, Any]]]],
    path: tuple[int | None, ...],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("regroup")
    groups = KeyGroups(128, CRC32)

    def of(key: Any, raw: bytes) -> tuple[int, bytes]:
        return groups.of(encode_key(key)), raw

    window = bytes(16)
    values = {of(k, encode_key(k)): b"\x01" for k in keys}
    lists = {of(k, encode_key(k) + window + n.to_bytes(8, "big")): b"\x00\x00\x00\x01\x05" for k in keys for n in range(2)}
    maps = {of(k, encode_key(k) + encode_key(sub)): b"\x02" for k in keys for sub in ("a", 5)}
    timers = {of(k, sortable_time(n) + encode_key(k) + window): b"" for k in keys for n in (-1, 10**13)}
    slices: dict[tuple[int, bytes], bytes] = {}
    for level, (time, rows) in enumerate(chunks):
        by_group: dict[int, list[tuple[Any, int, Any]]] = {}
        for row in rows:
            by_group.setdefault(groups.of(encode_key(row[0])), []).append(row)
        for group, mine in by_group.items():
            slices[group, sortable_time(time) + bytes((level % 2,))] = stored(mine)
    states = [
        (StateInfo("s", "v", "value", "int"), values),
        (StateInfo("s", "l", "list", "int", namespace=16), lists),
        (StateInfo("s", "m", "map", "int", sub_schema="any"), maps),
        (StateInfo("s", "timers:event", "timers", namespace=16), timers),
        (StateInfo("s", "slices", "slices", what=WHAT), slices),
    ]
    uri = written(folder / "first", states, groups)
    regrouped = uri
    for number in path:
        regrouped = snapshots.regroup(regrouped, number, str(folder / f"to-{number}")).uri
    assert logical(regrouped) == logical(uri)
    assert snapshots.diff(uri, regrouped).same


def test_what_is_said_of_the_job_is_kept_with_other_key_groups(tmp_path: Path) -> None:
    with SavepointWriter(open_storage(str(tmp_path / "a")), key_groups=KeyGroups(16, NEW_JOBS)) as savepoint:
        said = {"left_out": LeftOut(late=3, shed=1), "watermarks": {"s": 5}, "program": "p", "processing_time": 9}
        made = savepoint.finish(job=SavedJob(JobId("j"), "j"), epoch=Epoch(7), **said)
    again = snapshots.regroup(made.uri, 32, str(tmp_path / "b")).about()
    new = {name: again[name] for name in ("config", "parent")}
    assert again == {**made.about(), **new}
    assert (new["config"], new["parent"].epoch) == ({"max_parallelism": 32}, 7)


def test_a_job_goes_on_with_other_key_groups(tmp_path: Path) -> None:
    job = run_some(tmp_path, epochs=2, each=200)
    info = snapshots.regroup(save(job, tmp_path / "a"), 256, str(tmp_path / "b"))
    assert info.max_parallelism == 256
    assert info.parent is not None
    with snapshots.edit(info.uri) as edit:
        edit.move_source("orders", [0])
        moved = edit.write(str(tmp_path / "moved")).uri
    straight = program(ScriptedSource([*orders(0, 900), End()]), tmp_path / "straight", name="straight")
    execute_inline(straight, storage=str(tmp_path / "straight-job"))
    source = ScriptedSource([*orders(600, 300), End()])
    rest = program(source, tmp_path / "job-out-2", name="again", parallelism=3, max_parallelism=256)
    execute_inline(rest, storage=str(tmp_path / "again"), restore_from=moved)

    def straight_out(sink: str) -> str:
        return str(tmp_path / "straight" / sink)

    for sink in ("hourly", "visits", "dearest"):
        one = snapshots.diff_output(straight_out(sink), str(tmp_path / "job-out-2" / sink))[0]
        published = snapshots.diff_output(straight_out(sink), str(tmp_path / "job-out" / sink))[0].same
        assert (one.only_b, one.only_a) == (0, published), sink
    with pytest.raises(ConfigError, match="max_parallelism is 0"):
        snapshots.regroup(job, 0, str(tmp_path / "none"))


def test_the_cut_into_epochs_makes_no_difference(tmp_path: Path) -> None:
    """Two jobs with the same records, in few and in many epochs. (Timers that fire late or early are not state.)"""
    one, other = run_some(tmp_path, epochs=1, each=300, name="one"), run_some(tmp_path, epochs=5, each=100, name="other")
    found = snapshots.diff(one, other)
    assert [(s.step, s.name) for s in found.states if not s.same] == []
    assert sum(s.unchanged for s in found.states) > 400


def test_differences_are_counted_and_shown(tmp_path: Path) -> None:
    job = run_some(tmp_path)
    a = save(job, tmp_path / "a")
    with snapshots.edit(a) as edit:
        edit.state("ledger", "orders").put([{"key": "shop-1", "value": -1}, {"key": "new", "value": 1}])
        edit.state("ledger", "orders").remove("shop-2", "shop-3")
        edit.drop("ledger", "total")
        b = edit.write(str(tmp_path / "b")).uri
    rewritten = snapshots.regroup(b, 200, str(tmp_path / "c")).uri
    for other in (b, rewritten):
        found = snapshots.diff(a, other)
        assert not found.same
        state = next(s for s in found.states if s.name == "orders")
        assert (state.added, state.removed, state.changed, state.unchanged) == (1, 2, 1, 20)
        changes = {change.entry["key"]: (change.what, change.before, change.after) for change in state.examples}
        before = snapshots.read(a).state("ledger", "orders")
        assert changes == {
            "new": ("added", None, 1),
            "shop-1": ("changed", before.get("shop-1"), -1),
            "shop-2": ("removed", before.get("shop-2"), None),
            "shop-3": ("removed", before.get("shop-3"), None),
        }
        total = next(s for s in found.states if s.name == "total")
        assert (total.only, total.removed) == ("A", 23)
        assert {s.name for s in found.states if not s.same} == {"orders", "total"}
    assert snapshots.diff(f"{job}@4", f"{job}@5").sources == {"orders": ([602], [803])}


def test_output_is_compared_as_multisets(tmp_path: Path) -> None:
    def publish(name: str, values: list[int], **settings: Any) -> str:
        env = StreamEnvironment(name, executor="inline", parallelism=1)
        stream = env.from_source(ScriptedSource([*values, End()], **settings), name="in").map(lambda n: {"n": n}, name="rows")
        stream.sink_to(FileSink(str(tmp_path / name / "numbers"), format="json"), name="numbers")
        if name == "b":
            stream.sink_to(FileSink(str(tmp_path / name / "more"), format="json"), name="more")
        execute_inline(env, storage=str(tmp_path / f"{name}-job"))
        return str(tmp_path / name)

    a, b = publish("a", [1, 1, 2, 3], cut=1), publish("b", [3, 2, 1, 4])
    more, numbers = snapshots.diff_output(a, b)
    assert (more.sink, more.only, more.only_b) == ("more", "B", 4)
    assert (numbers.same, numbers.only_a, numbers.only_b) == (3, 1, 1)
    assert (numbers.examples_a, numbers.examples_b) == ([{"n": 1}], [{"n": 4}])
    assert snapshots.diff_output(a, a)[0].equal
    with pytest.raises(NotFoundError, match="no file sink has published"):
        snapshots.diff_output(a, str(tmp_path / "a-job"))
