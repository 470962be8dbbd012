"""Law: readers see the output of one line of epochs. A job may go back, or be repaired, and die anywhere on the way."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import FileSink, FileSource, StreamEnvironment, failpoints
from penstock.connectors import PrintSink
from penstock.connectors.files.reading.published import read_rows
from penstock.connectors.protocol import OutputSince
from penstock.connectors.twophase import SqliteSink
from penstock.diagnosis.invocation import Invocation
from penstock.epochs.committing import commit_protocol, group_commit
from penstock.epochs.history import EpochRecord
from penstock.epochs.starting import output_replacement, sequence, takeover
from penstock.epochs.starting.output_replacement import begun
from penstock.epochs.starting.rewind import SinkFacts, repeated
from penstock.errors import ConfigError, FencedError, PenstockError, RepeatedOutputError, SinkError
from penstock.ids import Epoch, StepId
from penstock.jobs.manifest import Rewind, SourceState
from tests.laws.going import COUNT, PER_EPOCH, Rows, expected, head, position, rows, run
from tests.laws.test_atomic_epochs import _die
from tests.laws.trying import Crash, Interrupted, breaks, crash, manifests

BACK = 3
"""The epoch that is gone back to: two of data, after the take-over epoch."""

AT = 2 * PER_EPOCH
OLD = 5 * PER_EPOCH
"""How far the old program gets."""

PLACES = [
    "source:planned",
    "epoch:ran",
    "manifest:before",
    "manifest:after",
    "sink:committed",
    "done:before",
    "half-written:json",
    "recovery:before-commit",
    "recovery:committed",
    "recovery:taken-over",
    "rollback:before",
    "rollback:done",
]
REPAIR = [*PLACES, "repair:before-switch", "repair:switched"]


def old(folder: Path, **how: Any) -> Rows:
    """Five epochs of data of the first version; what they published."""
    with pytest.raises(Crash):
        run(folder, 1, executor=Interrupted(6, crash), **how)
    return rows(folder)


def dies(folder: Path, place: str, passing: int, **how: Any) -> bool:
    failpoints.arm(f"{place}=crash@{passing}")
    try:
        run(folder, 2, **how)
    except Crash:
        return True
    finally:
        failpoints.arm("")
    return False


def check_roll_back(folder: Path, place: str, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(failpoints, "_act", _die)
    before = old(folder)
    seen: list[Rows] = []
    for passing in (1, 2, 5, 1, 3):
        dies(folder, place, passing, start=None if head(folder).restored else BACK)
        seen.append(rows(folder))
    new = expected((1, AT), (2, COUNT))
    assert all(one <= new or one == before for one in seen)
    run(folder, 2, start=None if head(folder).restored else BACK)
    assert rows(folder) == new


@pytest.mark.parametrize("place", PLACES)
def test_a_job_that_goes_back_may_die_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    check_roll_back(tmp_path, place, monkeypatch)


def check_repair(folder: Path, place: str, patch: pytest.MonkeyPatch) -> None:
    """Readers see all of the old output, or the new from the point where it has caught up."""
    patch.setattr(failpoints, "_act", _die)
    before = old(folder)
    new = expected((1, AT), (2, COUNT))
    caught_up = expected((1, AT), (2, OLD))
    seen = []
    for passing in (1, 2, 3, 5):
        how: dict[str, Any] = {} if head(folder).repair else {"start": BACK, "repair": True}
        dies(folder, place, passing, **how)
        seen.append(rows(folder))
    run(folder, 2)
    assert all(one == before or caught_up <= one <= new for one in seen), [sum(one.values()) for one in seen]
    assert rows(folder) == new
    repair = head(folder).repair
    assert repair is not None
    assert repair.done is not None


@pytest.mark.parametrize("place", REPAIR)
def test_a_repair_may_die_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    check_repair(tmp_path, place, monkeypatch)


def test_it_fails_when_a_start_does_not_finish_going_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "turn_back", lambda *args: None)
    breaks(lambda: check_repair(tmp_path, "rollback:before", monkeypatch))


def test_it_fails_when_a_start_does_not_finish_the_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "finish_repair", lambda *args: None)
    monkeypatch.setattr(takeover, "begun", lambda back, *rest: begun(back, *rest) if back else None)
    breaks(lambda: check_repair(tmp_path, "repair:before-switch", monkeypatch))


def test_the_repair_shows_all_of_it_at_once(tmp_path: Path) -> None:
    before = old(tmp_path)
    run(tmp_path, 2, start=BACK, repair=True, executor=Interrupted(3, lambda: _same(tmp_path, before), after=True))
    assert rows(tmp_path) == expected((1, AT), (2, COUNT))
    repair = head(tmp_path).repair
    assert repair is not None
    assert repair.done == repair.at + 3  # three epochs up to where the old head was


def _same(folder: Path, before: Rows) -> None:
    assert rows(folder) == before
    assert "stays until the new one has caught up" in output_replacement.describe(head(folder).repair)


def test_a_repair_that_never_catches_up_can_be_given_up(tmp_path: Path) -> None:
    before = old(tmp_path)
    old_head = head(tmp_path).epoch
    with pytest.raises(Crash):
        run(tmp_path, 2, start=BACK, repair=True, executor=Interrupted(3, crash))
    assert rows(tmp_path) == before
    run(tmp_path, 1, start=old_head)
    assert rows(tmp_path) == expected((1, COUNT))
    assert head(tmp_path).repair is None


def test_a_repair_can_be_repaired(tmp_path: Path) -> None:
    before = old(tmp_path)
    for version in (2, 3):
        with pytest.raises(Crash):
            run(tmp_path, version, start=BACK, repair=True, executor=Interrupted(3, crash))
        assert rows(tmp_path) == before
    run(tmp_path, 3)
    assert rows(tmp_path) == expected((1, AT), (3, COUNT))


def test_nothing_to_repair_is_said(tmp_path: Path) -> None:
    old(tmp_path)
    with pytest.raises(ConfigError, match="nothing to repair"):
        run(tmp_path, 2, repair=True)
    run(tmp_path, 2, start=head(tmp_path).epoch)
    assert rows(tmp_path) == expected((1, OLD), (2, COUNT))


# --- one writer ---------------------------------------------------------------------------------------------------------------


def check_late(folder: Path, place: str, repair: bool, patch: pytest.MonkeyPatch) -> None:
    """A driver stops in an epoch, a successor goes back and stops, the first goes on."""
    passed = 0
    real = failpoints.fail_point

    def point(name: str) -> None:
        nonlocal passed
        real(name)
        if name == place:
            passed += 1
            if passed == 6:
                patch.setattr(commit_protocol, "fail_point", real)
                with pytest.raises(Crash):
                    run(folder, 2, start=BACK, repair=repair, executor=Interrupted(1, crash))
                patch.setattr(commit_protocol, "fail_point", point)

    patch.setattr(commit_protocol, "fail_point", point)
    with pytest.raises((FencedError, SinkError)):
        run(folder, 1)
    patch.setattr(commit_protocol, "fail_point", real)
    assert rows(folder) in ([expected((1, 4 * PER_EPOCH)), expected((1, OLD))] if repair else [expected((1, AT))])
    run(folder, 2)
    assert rows(folder) == expected((1, AT), (2, COUNT))


@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("place", ["manifest:before", "manifest:after"])
def test_a_late_driver_publishes_nothing_of_what_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, repair: bool
) -> None:
    check_late(tmp_path, place, repair, monkeypatch)


def check_asleep_before_its_sinks(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The same, asleep after it has made sure that it is the driver, before its sinks are committed."""
    real, passed = commit_protocol.commit_sinks, 0

    def asleep(committers: Any, committables: Any, epoch: Epoch) -> None:
        nonlocal passed
        passed += bool(committables)
        if passed == 5:
            patch.setattr(group_commit, "commit_sinks", real)
            with pytest.raises(Crash):
                run(folder, 2, start=BACK, executor=Interrupted(1, crash))
        real(committers, committables, epoch)

    patch.setattr(group_commit, "commit_sinks", asleep)
    with pytest.raises((FencedError, SinkError)):
        run(folder, 1)
    assert rows(folder) == expected((1, AT))


def test_a_driver_asleep_before_its_sinks_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_asleep_before_its_sinks(tmp_path, monkeypatch)


def test_it_fails_when_going_back_leaves_no_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "turn_back", lambda *args: None)
    breaks(lambda: check_asleep_before_its_sinks(tmp_path, monkeypatch))


# --- what cannot be taken back ----------------------------------------------------------------------------------------------


def table(folder: Path) -> SqliteSink:
    return SqliteSink(str(folder / "rows.db"), "found", ["n", "number", "version"])


def in_table(folder: Path) -> Rows:
    with sqlite3.connect(folder / "rows.db") as database:
        return Rows(tuple(row) for row in database.execute("SELECT n, number, version FROM found"))


def test_output_in_a_folder_that_the_sink_no_longer_writes_to(tmp_path: Path) -> None:
    """It would be published again to another folder, and stay in the old one."""
    old(tmp_path, sink=FileSink(str(tmp_path / "first")))
    epochs, there = head(tmp_path).epoch, len(list(read_rows(tmp_path / "first")))
    with pytest.raises(RepeatedOutputError) as refused:
        run(tmp_path, 2, start=BACK, sink=FileSink(str(tmp_path / "second")))
    wanted = f"other (json files in {tmp_path}/second): 60 records in {tmp_path}/first, where it wrote then"
    assert refused.value.detail == wanted
    assert "let a sink write where it wrote then" in refused.value.hint
    assert head(tmp_path).epoch == epochs, "nothing has happened"
    run(tmp_path, 2, start=BACK, sink=FileSink(str(tmp_path / "second")), repeat_output=True)
    new = expected((1, AT), (2, COUNT))
    assert rows(tmp_path) == new
    assert len(list(read_rows(tmp_path / "first"))) == there
    assert len(list(read_rows(tmp_path / "second"))) == COUNT - AT


def test_a_folder_that_was_given_another_name_and_back(tmp_path: Path) -> None:
    """Also one epoch further: what was written before is in the first folder, what is given up in the second."""
    with pytest.raises(Crash):
        run(tmp_path, 1, executor=Interrupted(3, crash), sink=FileSink(str(tmp_path / "first")))
    with pytest.raises(Crash):
        run(tmp_path, 1, executor=Interrupted(4, crash), sink=FileSink(str(tmp_path / "second")))
    run(tmp_path, 2, start=BACK, sink=FileSink(str(tmp_path / "second")))  # nothing was written to the first since then
    assert rows(tmp_path) == expected((1, AT), (2, COUNT))
    assert len(list(read_rows(tmp_path / "first"))) == AT
    assert len(list(read_rows(tmp_path / "second"))) == COUNT - AT


def test_repeats_are_refused_by_name_unless_told(tmp_path: Path) -> None:
    old(tmp_path, sink=table(tmp_path))
    epochs = head(tmp_path).epoch
    with pytest.raises(RepeatedOutputError) as refused:
        run(tmp_path, 2, start=BACK, sink=table(tmp_path))
    assert refused.value.detail == f"other (table found in {tmp_path}/rows.db): epochs 4 to 6; 60 records"
    assert "--repeat-output" in refused.value.hint
    assert head(tmp_path).epoch == epochs, "nothing has happened"
    asked: list[str] = []

    def no(refusal: PenstockError, question: str) -> bool:
        asked.append(refusal.detail)
        return False

    with pytest.raises(RepeatedOutputError):
        run(tmp_path, 2, start=BACK, sink=table(tmp_path), invocation=Invocation(confirm=no))
    run(tmp_path, 2, start=BACK, sink=table(tmp_path), invocation=Invocation(confirm=lambda refusal, question: True))
    assert asked == [refused.value.detail]
    new = expected((1, AT), (2, COUNT))
    assert rows(tmp_path) == new
    assert in_table(tmp_path) == new + (expected((1, OLD)) - expected((1, AT)))


def test_what_was_printed_counts_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old(tmp_path, sink=PrintSink(limit=0))
    with pytest.raises(RepeatedOutputError, match="would publish again"):
        run(tmp_path, 2, start=BACK, sink=PrintSink(limit=0))
    run(tmp_path, 2, start=BACK, sink=PrintSink(limit=0), repeat_output=True)
    assert rows(tmp_path) == expected((1, AT), (2, COUNT))


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_a_storage_that_is_behind_its_output(tmp_path: Path, guarantee: str) -> None:
    """A mirror, or a backup put back: what was published since is taken back, or repeated; nothing is dropped."""
    sink = table(tmp_path)
    with pytest.raises(Crash):
        run(tmp_path, 1, executor=Interrupted(3, crash), sink=sink, guarantee=guarantee)
    shutil.copytree(tmp_path / "storage", tmp_path / "mirror")
    behind = position(head(tmp_path))
    with pytest.raises(Crash):
        run(tmp_path, 1, executor=Interrupted(4, crash), sink=sink, guarantee=guarantee)
    lost = head(tmp_path).epoch
    shutil.rmtree(tmp_path / "storage")
    shutil.copytree(tmp_path / "mirror", tmp_path / "storage")
    with pytest.raises(RepeatedOutputError, match="it is not known how many records"):
        run(tmp_path, 2, sink=sink, guarantee=guarantee)
    run(tmp_path, 2, sink=sink, guarantee=guarantee, repeat_output=True)
    assert head(tmp_path).epoch > lost + 5
    new = expected((1, behind), (2, COUNT))
    assert rows(tmp_path) == new
    assert new <= in_table(tmp_path)


def test_what_a_target_records_is_said_of_it() -> None:
    """A mirror's numbers go on far above: what may be published again does not reach that far."""
    back = Rewind(Epoch(215), Epoch(100_226), False)

    def line(published: OutputSince | None, newest: int | None) -> str:
        known = None if newest is None else Epoch(newest)
        facts = SinkFacts(step=StepId("out"), what="table t in x.db", can=False, published=published, records=None, newest=known)
        return repeated(back, [facts])[0]

    told = OutputSince(newest=Epoch(226))
    assert line(told, 226) == (
        "out (table t in x.db): epochs 216 to 226, the newest that its target records; it is not known how many records"
    )
    assert line(told, 216).startswith("out (table t in x.db): epoch 216, the newest")
    assert line(None, None) == "out (table t in x.db): epochs 216 to 100226; it is not known how many records"


def behind(folder: Path) -> int:
    """A storage that is three epochs behind its output; how many records it has read."""
    with pytest.raises(Crash):
        run(folder, 1, executor=Interrupted(3, crash))
    shutil.copytree(folder / "storage", folder / "mirror")
    with pytest.raises(Crash):
        run(folder, 1, executor=Interrupted(4, crash))
    shutil.rmtree(folder / "storage")
    shutil.move(folder / "mirror", folder / "storage")
    return position(head(folder))


@pytest.mark.parametrize(
    "place", ["rollback:claimed", "manifest:after", "rollback:before", "rollback:done", "recovery:taken-over"]
)
@pytest.mark.parametrize("repair", [False, True])
def test_a_storage_that_is_behind_may_die_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, repair: bool
) -> None:
    monkeypatch.setattr(failpoints, "_act", _die)
    at = behind(tmp_path)
    published = rows(tmp_path)
    for passing in (1, 1, 2):
        dies(tmp_path, place, passing, repair=repair)
        assert rows(tmp_path) in (published, expected((1, at))) or head(tmp_path).epoch > 10
    run(tmp_path, 2)
    assert rows(tmp_path) == expected((1, at), (2, COUNT))


def test_of_two_drivers_on_a_storage_that_is_behind_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = behind(tmp_path)
    real = takeover.claim_of

    def late(*args: Any) -> Any:
        """All is decided; now another driver starts, and gets as far as its second epoch."""
        monkeypatch.setattr(sequence, "claim_of", real)
        with pytest.raises(Crash):
            run(tmp_path, 3, executor=Interrupted(2, crash))
        return real(*args)

    monkeypatch.setattr(sequence, "claim_of", late)
    with pytest.raises(FencedError):
        run(tmp_path, 2)
    run(tmp_path, 3)
    assert rows(tmp_path) == expected((1, at), (3, COUNT))


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
@pytest.mark.parametrize("repair", [False, True])
@pytest.mark.parametrize("pipeline", [0, 3])
def test_other_guarantees_go_back_too(tmp_path: Path, guarantee: str, repair: bool, pipeline: int) -> None:
    old(tmp_path, guarantee=guarantee)
    run(tmp_path, 2, start=BACK, guarantee=guarantee, repair=repair, pipeline=pipeline)
    assert rows(tmp_path) == expected((1, AT), (2, COUNT))
    assert (head(tmp_path).repair is not None) == repair


def test_an_epoch_that_was_given_up_unpublished_is_refused(tmp_path: Path) -> None:
    failpoints.arm("manifest:after=raise@6")
    try:
        with pytest.raises(failpoints.InjectedError):
            run(tmp_path, 1)
    finally:
        failpoints.arm("")
    unpublished = head(tmp_path).epoch
    with pytest.raises(Crash):
        run(tmp_path, 2, start=BACK, executor=Interrupted(2, crash))
    with pytest.raises(SinkError, match=f"epoch {unpublished} .* was abandoned before its output was published"):
        run(tmp_path, 1, start=unpublished)
    run(tmp_path, 2)
    assert rows(tmp_path) == expected((1, AT), (2, COUNT))


# --- until when ---------------------------------------------------------------------------------------------------------------


class Silent:
    """An enumerator that cannot compare positions."""

    def __init__(self, inner: Any) -> None:
        self.plan, self.committed, self.close = inner.plan, inner.committed, inner.close


@pytest.mark.parametrize("compares", [True, False])
def test_a_repair_over_files_that_go_on_coming(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compares: bool) -> None:
    """It ends where the old program had come to; at the end of what is there, if that cannot be told."""

    def put(number: int) -> None:
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.txt").write_text("".join(f"{number}-{line}\n" for line in range(4)))

    def job(version: int, **settings: Any) -> None:
        env = StreamEnvironment(
            "lines",
            executor="inline",
            storage=str(tmp_path / "storage"),
            parallelism=1,
            max_records_per_epoch=2,
            first_records_per_epoch=2,
            until_idle=True,
            keep=100,
        )
        lines = env.from_source(FileSource(str(tmp_path / "in"), watch=0.001, lanes=1), name="lines")
        lines.map(lambda line: {"line": line, "version": version}).sink_to(FileSink(str(tmp_path / "out")), name="out")
        env.execute(**settings)

    if not compares:
        real = FileSource.enumerator
        monkeypatch.setattr(FileSource, "enumerator", lambda self, context: Silent(real(self, context)))
    put(1)
    job(1)
    back = head(tmp_path).epoch
    put(2)
    job(1)
    put(3)
    seen: list[Counter[int]] = []

    def look(record: EpochRecord) -> None:
        seen.append(Counter(row["version"] for row in read_rows(tmp_path / "out")))

    job(2, restore_from=f"@{back}", repair=True, listener=look)
    old, new = Counter({1: 8}), Counter({1: 4, 2: 8})
    switched = Counter({1: 4, 2: 4})
    assert seen[-1] == new
    assert old in seen
    assert (switched in seen) == compares
    assert all(one == old or switched <= one <= new for one in seen)


def test_output_of_a_sink_that_is_gone_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old(tmp_path, sink=FileSink(str(tmp_path / "more")))
    before = len(read_rows(tmp_path / "more"))
    run(tmp_path, 2, start=BACK)
    assert "no longer has the sink other" in caplog.text
    assert len(read_rows(tmp_path / "more")) == before


# --- against a model --------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.sampled_from(["on", "on", "back", "repair"]), st.floats(0, 1), st.integers(1, 6)), min_size=2, max_size=4
    ),
    st.sampled_from([0, 2]),
)
def test_random_journeys(tmp_path_factory: pytest.TempPathFactory, actions: list[tuple[str, float, int]], pipeline: int) -> None:
    """A line is what each version read of the input; readers see one line, in a repair the old one.

    A repair ends with an epoch that gets to where the old line was; at once, if it begins there, or nothing had been read.
    """
    folder = tmp_path_factory.mktemp("journey")
    lines: dict[int, tuple[tuple[int, int], ...]] = {}
    seen: tuple[tuple[int, int], ...] = ()
    goal: tuple[int, Any] | None = None
    places: dict[int, tuple[int, Any]] = {}
    for version, (action, share, epochs) in enumerate(actions, start=1):
        newest = max(lines, default=0)
        to = sorted(lines)[int(share * (len(lines) - 1))] if lines and action != "on" else newest
        going = to < newest
        repair = action == "repair" and going
        if going:
            goal = (goal or places[newest]) if repair else None
            if goal is not None and (goal in (places[to], (0, None)) or places[to][0] == COUNT):
                goal = None
        try:
            run(
                folder,
                version,
                start=to if going else None,
                repair=repair,
                executor=Interrupted(epochs, crash),
                keep=1000,
                pipeline=pipeline,
            )
        except Crash:
            pass
        line = lines.get(to, ())
        for manifest in manifests(folder):
            if manifest.epoch > newest:
                at = position(manifest)
                lines[manifest.epoch] = (*line, (version, at)) if at > (line[-1][1] if line else 0) else line
                places[manifest.epoch] = at, manifest.sources.get("numbers", SourceState()).position
                if goal is not None and manifest.plan > 1 and at >= goal[0]:
                    goal = None
        if goal is None:
            seen = lines[max(lines)]
        assert rows(folder) == expected(*seen)
