"""A kept epoch is run again: what is shown of it, what is compared, what is refused."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    CollectionSource,
    FileSource,
    Job,
    KeyedProcessFunction,
    RestartPolicy,
    StreamEnvironment,
    ValueState,
    Watermarks,
    snapshots,
)
from penstock.errors import ConfigError, NotFoundError, SourceError, UserCodeError
from penstock.ids import StepId
from penstock.jobs.manifest import load_manifest
from penstock.snapshots.replay.selection import parse_target, spans
from penstock.snapshots.replay.shadow import ShadowStorage
from penstock.storage import open_storage
from penstock.testing import execute_inline
from tests.snapshots import shop
from tests.snapshots.replay.test_replay_random import contents

SETTINGS: dict[str, Any] = {
    "executor": "inline",
    "parallelism": 2,
    "max_records_per_epoch": 7,
    "keep": 100,
    "restart": RestartPolicy(attempts=0),
}


def program(storage: Path, n: int = 30, *, broken: int | None = None, **settings: Any) -> StreamEnvironment:
    env = StreamEnvironment("shop", storage=str(storage), **{**SETTINGS, **settings})
    return shop.build(env, shop.orders(n, broken=broken))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    program(tmp_path / "job").execute()
    return tmp_path / "job"


def test_every_epoch_is_reproduced_and_nothing_is_touched(job: Path) -> None:
    before = contents(str(job))
    epochs = snapshots.replayable(open_storage(job))
    assert [one.epoch for one in epochs] == list(range(2, 2 + len(epochs)))
    assert sum(one.records_in for one in epochs) == 30
    for one in epochs:
        replayed = snapshots.replay(job, one.epoch, env=program(job))
        assert replayed.reproduced, replayed.verdict
        assert replayed.verdict.entries > 0
    assert contents(str(job)) == before


def test_what_a_keyed_step_did(job: Path) -> None:
    step = snapshots.replay(job, 3, env=program(job), step="reminders").step("reminders")
    assert (step.records_in, step.records_out, step.keys) == (7, 7, 3)
    first = step.events[0]
    assert first.kind == "record"
    assert isinstance(first.value, shop.Order)
    assert first.key == first.value.customer
    assert first.timestamp_ms == first.value.time
    assert first.before is not None
    assert first.after is not None
    assert first.after["basket"].total == pytest.approx(first.before["basket"].total + first.value.price)
    assert first.after["items"] == [*first.before["items"], first.value.item]
    assert first.after["counts"][first.value.item] == first.before["counts"].get(first.value.item, 0) + 1
    assert first.after["recent"] == first.value.item
    assert [out.value for out in first.outputs] == [f"{first.key}: {first.after['basket'].total:.2f}"]
    assert [(timer.deleted, timer.time) for timer in first.timers] == [
        (True, first.before["basket"].last + 60_000),
        (False, first.value.time + 60_000),
    ]
    for key, events in step.by_key().items():
        for earlier, later in itertools.pairwise(events):
            assert repr(earlier.after) == repr(later.before), key


def test_timers_and_side_outputs_are_shown(job: Path) -> None:
    replays = [snapshots.replay(job, one.epoch, env=program(job)) for one in snapshots.replayable(open_storage(job))]
    events = [event for one in replays for event in one.step("reminders").events]
    fired = [event for event in events if event.kind == "timer"]
    assert fired
    assert all(event.domain == "event" and "waiting" in event.outputs[0].value for event in fired)
    assert all(event.before is not None and event.after is not None and "items" not in event.after for event in fired)
    large = [out for event in events for out in event.outputs if out.tag == "large"]
    assert large
    assert all(out.value.price > 50 for out in large)
    assert sum(one.step("large").records_in for one in replays) == len(large)


def test_the_state_before_and_after(job: Path) -> None:
    step = snapshots.replay(job, 3, env=program(job), step="reminders", key="ann").step("reminders")
    assert {change.key for change in step.changes} == {"ann"}
    by_name = {change.state: change for change in step.changes if change.state != "counts"}
    last = step.events[-1]
    assert last.after is not None
    assert by_name["items"].after == last.after["items"]
    assert by_name["items"].before == step.events[0].before["items"]  # type: ignore[index]
    assert by_name["basket"].after == last.after["basket"]
    counts = {change.map_key: change.after for change in step.changes if change.state == "counts"}
    assert counts.items() <= last.after["counts"].items()
    assert "timers:event" in by_name


def test_a_key_of_another_type(tmp_path: Path) -> None:
    env = StreamEnvironment("numbers", storage=str(tmp_path), **SETTINGS)
    env.from_collection([(n % 3, n) for n in range(10)]).key_by(0).sum(1, name="sums").print(name="out")
    env.execute()
    step = snapshots.replay(tmp_path, 2, env=env, step="sums", key="2").step("sums")
    assert [event.value for event in step.events] == [(2, 2), (2, 5)]
    assert snapshots.replay(tmp_path, 2, env=env, step="sums", key=2).step("sums").events == step.events
    assert snapshots.replay(tmp_path, 2, env=env, step="sums", key="x").step("sums").events == []


def test_the_limit_counts_what_it_leaves_out(job: Path) -> None:
    step = snapshots.replay(job, 3, env=program(job), limit=2).step("reminders")
    assert len(step.events) == 2
    assert step.left_out == step.records_in + step.timers - 2
    assert len(step.changes) <= 2
    assert step.changes_left_out > 0


def test_windows_are_shown(job: Path) -> None:
    replays = [snapshots.replay(job, one.epoch, env=program(job)) for one in snapshots.replayable(open_storage(job))]
    for name, kind in (("sessions", "timer"), ("minutes", "window")):
        fired = [e for one in replays for e in one.step(name).events if e.kind == kind and e.outputs]
        assert fired
        assert all(event.window is not None and event.key in ("ann", "bob", "eve") for event in fired)
    emitted = [out for one in replays for e in one.step("columns").events for out in e.outputs]
    assert len(emitted) == sum(one.step("columns").records_out for one in replays)
    mine = [snapshots.replay(job, one.epochs[0], env=program(job), step="columns", key="ann").step("columns") for one in replays]
    assert [out.value for step in mine for e in step.events for out in e.outputs] == [
        out.value for out in emitted if out.value["customer"] == "ann"
    ]
    assert {change.key for step in mine for change in step.changes} == {"ann"}
    changes = [change for one in replays for change in one.step("columns").changes]
    assert {change.key for change in changes} == {"ann", "bob", "eve"}


class Dice(KeyedProcessFunction[Any, Any, Any]):
    last: ValueState[int] = ValueState(int)

    def process(self, value: Any, ctx: Any) -> Any:
        self.last.update(random.randrange(10**9))
        yield self.last.value


def test_a_function_that_is_not_deterministic_is_found_out(tmp_path: Path) -> None:
    env = StreamEnvironment("dice", storage=str(tmp_path), **SETTINGS)
    env.from_collection(["a", "b", "a"]).key_by(lambda v: v).process(Dice(), name="dice").print(name="out")
    env.execute()
    replayed = snapshots.replay(tmp_path, "latest", env=env)
    assert replayed.reproduced is False
    first = replayed.verdict.differences[0]
    assert (first.step, first.what) == ("dice", "state 'last'")
    assert first.key in ("a", "b")
    assert first.committed != first.replayed


def test_another_number_of_outputs_is_found_out(tmp_path: Path) -> None:
    calls = itertools.count()
    env = StreamEnvironment("counts", storage=str(tmp_path), **SETTINGS)
    env.from_collection([1, 2, 3]).flat_map(lambda n: [n] * (next(calls) // 3 + 1), name="more").print(name="out")
    env.execute()
    differences = snapshots.replay(tmp_path, 2, env=env).verdict.differences
    assert ("more", "records out", 3, 6) in [(d.step, d.what, d.committed, d.replayed) for d in differences]


def test_a_changed_collection_is_found_out(tmp_path: Path) -> None:
    env = StreamEnvironment("numbers", storage=str(tmp_path), **SETTINGS)
    env.from_collection([1, 2, 3], name="in").print(name="out")
    env.execute()
    other = StreamEnvironment("numbers", storage=str(tmp_path), **SETTINGS)
    other.from_collection([1, 2], name="in").print(name="out")
    replayed = snapshots.replay(tmp_path, 2, env=other)
    assert ("in", "records in", 3, 2) in [(d.step, d.what, d.committed, d.replayed) for d in replayed.verdict.differences]


def test_epochs_that_were_committed_together(tmp_path: Path) -> None:
    """They are run one after another."""
    env = program(tmp_path, pipeline=3, checkpoint_interval=3600)
    execute_inline(env, storage=str(tmp_path), pipeline=3, checkpoint_interval=3600)
    (one,) = [one for one in snapshots.replayable(open_storage(tmp_path)) if len(one.inputs) > 1]
    assert {given.epoch for given in one.inputs} == {one.epoch}
    whole = snapshots.replay(tmp_path, one.epoch, env=env)
    assert whole.reproduced, whole.verdict
    assert whole.epochs == [one.epoch] * len(one.inputs)
    assert whole.step("orders").records_in == one.records_in == 30
    with pytest.raises(ConfigError, match="is not committed"):
        snapshots.replay(tmp_path, one.epoch + 1, env=env)


def test_after_a_restore_at_another_parallelism(job: Path, tmp_path: Path) -> None:
    """State that begins with the files of a savepoint."""
    Job(job).savepoint(tmp_path / "savepoint", epoch=4)
    restored = program(tmp_path / "other", parallelism=3, restore_from=str(tmp_path / "savepoint"))
    restored.execute()
    epochs = snapshots.replayable(open_storage(tmp_path / "other"))
    before = sum(one.records_in for one in snapshots.replayable(open_storage(job)) if one.epoch <= 4)
    assert sum(one.records_in for one in epochs) == 30 - before
    for one in epochs:
        replayed = snapshots.replay(tmp_path / "other", one.epoch, env=restored)
        assert replayed.reproduced, replayed.verdict
        assert replayed.parallelism == 3


def test_the_handle_of_a_job_and_its_pins(job: Path) -> None:
    seen: list[list[str]] = []

    class Looking(shop.Reminder):
        def open(self, context: Any) -> None:
            seen.append([path.name for path in (job / "pins").iterdir()])

    env = StreamEnvironment("shop", **SETTINGS)
    env.from_source(
        program(job).graph.nodes[StepId("orders")].definition.source,  # type: ignore[attr-defined]
        watermarks=program(job).graph.nodes[StepId("orders")].definition.watermarks,  # type: ignore[attr-defined]
        name="orders",
    ).key_by("customer").process(Looking(), name="reminders").print(name="out")
    replayed = Job(job).replay(4, env=env, step="reminders", key="ann")
    assert {event.key for event in replayed.step("reminders").events} == {"ann"}
    assert seen
    assert all(len(pins) == 2 for pins in seen)
    assert list((job / "pins").iterdir()) == []


# --- the next epoch ----------------------------------------------------------------------------------------------------------


def test_the_epoch_that_fails(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError, match=r"a price of -1\.1") as caught:
        program(tmp_path, broken=26).execute()
    assert f"penstock replay {tmp_path}@next" in caught.value.__notes__[-1]
    before = contents(str(tmp_path))
    replayed = snapshots.replay(tmp_path, "next", env=program(tmp_path, broken=26), step="reminders")
    assert contents(str(tmp_path)) == before
    assert replayed.failure is not None
    assert "a price of -1.1" in replayed.failure.what
    assert replayed.failed_step == "reminders"
    assert replayed.failed is not None
    assert replayed.failed.value.price == -1.1
    assert replayed.failed.before is not None
    assert replayed.step("reminders").events[-1] == replayed.failed


def test_the_failing_record_is_found_when_nothing_is_looked_at(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError):
        program(tmp_path, broken=26).execute()
    replayed = snapshots.replay(tmp_path, "next", env=program(tmp_path, broken=26), limit=0)
    assert replayed.failed is not None
    assert replayed.failed.value.price == -1.1


def test_the_next_epoch_of_a_job_that_is_well(tmp_path: Path) -> None:
    env = program(tmp_path)
    env.execute(listener=lambda record: None, until_idle=True)
    more = snapshots.replay(tmp_path, "next", env=program(tmp_path))
    assert (more.failure, more.reproduced) == (None, None)
    assert more.notes == ["there is nothing to read now"]


def test_as_much_of_the_next_epoch_as_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UserCodeError):
        program(tmp_path, broken=26).execute()
    mended = program(tmp_path)
    small = snapshots.replay(tmp_path, "next", env=mended, records=2)
    assert small.failure is None
    assert small.step("orders").records_in == 2
    assert small.backlog == 30 - 25 - 2
    assert snapshots.replay(tmp_path, "next", env=mended, records=100).step("orders").records_in == 5


# --- what is refused ---------------------------------------------------------------------------------------------------------


def test_an_epoch_without_its_parent(tmp_path: Path) -> None:
    program(tmp_path, keep=3).execute()
    with pytest.raises(ConfigError, match=r"epoch 5 is kept, but the one before it, 4, is not") as caught:
        snapshots.replay(tmp_path, 5, env=program(tmp_path))
    assert "epochs that can be replayed: 6, 7" in caught.value.detail
    with pytest.raises(ConfigError, match="epoch 2 is not kept any more"):
        snapshots.replay(tmp_path, 2, env=program(tmp_path))
    with pytest.raises(ConfigError, match="epoch 99 is not committed: the newest is 7"):
        snapshots.replay(tmp_path, 99, env=program(tmp_path))


def test_the_empty_epoch_of_a_driver(job: Path) -> None:
    with pytest.raises(ConfigError, match="epoch 1 read nothing"):
        snapshots.replay(job, 1, env=program(job))


def test_input_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"n": 1}\n{"n": 2}\n')
    env = StreamEnvironment("files", storage=str(tmp_path / "job"), **SETTINGS)
    env.from_source(FileSource(str(tmp_path / "in" / "*.json")), name="in").key_by("n").sum("n", name="sums").print(name="out")
    env.execute(until_idle=True)
    assert snapshots.replay(tmp_path / "job", 2, env=env).reproduced
    (tmp_path / "in" / "a.json").unlink()
    with pytest.raises((SourceError, NotFoundError)) as caught:
        snapshots.replay(tmp_path / "job", 2, env=env)
    assert "a.json" in str(caught.value)


def test_the_wrong_program(job: Path) -> None:
    other = StreamEnvironment("other", **SETTINGS)
    other.from_collection([1]).print()
    with pytest.raises(ConfigError, match=r"runs the job 'other', and .* holds the job 'shop'"):
        snapshots.replay(job, 2, env=other)


def test_a_copy_of_a_job(job: Path, tmp_path: Path) -> None:
    shutil.copytree(job, tmp_path / "copy")
    replayed = snapshots.replay(tmp_path / "copy", 3, env=program(job))
    assert replayed.reproduced
    assert replayed.notes == [f"the program runs its job in {job}, and what is replayed is in file://{tmp_path / 'copy'}"]


def test_a_job_without_a_program_file(job: Path) -> None:
    manifest = load_manifest(open_storage(job), snapshots.replayable(open_storage(job))[0].epoch)
    assert manifest.program
    with pytest.raises(ConfigError, match="not started from a file") as caught:
        snapshots.replay(job, 2)
    assert "--app" in caught.value.hint


def test_no_job_and_no_step(job: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no job"):
        snapshots.replay(tmp_path / "nowhere", 2)
    with pytest.raises(ConfigError, match="which epoch"):
        snapshots.replay(job)
    with pytest.raises(ConfigError, match="no step 'x'") as caught:
        snapshots.replay(job, 2, env=program(job), step="x")
    assert "reminders" in caught.value.detail
    with pytest.raises(ConfigError, match="'tax' has no keys"):
        snapshots.replay(job, 2, env=program(job), step="tax", key="ann")


def test_a_program_with_more_and_with_less_state(job: Path) -> None:
    """Today's program may be another: what it keeps goes on, what it does not is named."""
    env = StreamEnvironment("shop", **SETTINGS)
    stream = env.from_source(
        program(job).graph.nodes[StepId("orders")].definition.source,  # type: ignore[attr-defined]
        watermarks=program(job).graph.nodes[StepId("orders")].definition.watermarks,  # type: ignore[attr-defined]
        name="orders",
    )
    stream.key_by("customer").sum("price", name="spent").print(name="out")
    replayed = snapshots.replay(job, 3, env=env)
    assert any("no longer claims the state" in note and "reminders.basket" in note for note in replayed.notes)
    assert replayed.reproduced is False


class Numbers(KeyedProcessFunction[str, Any, Any]):
    total: ValueState[int] = ValueState(int, default=0)

    def process(self, value: Any, ctx: Any) -> Any:
        self.total.update(self.total.value + value[1])
        yield self.total.value


class Texts(KeyedProcessFunction[str, Any, Any]):
    """The same total, as text."""

    total: ValueState[str] = ValueState(str, default="0", migrate=str)

    def process(self, value: Any, ctx: Any) -> Any:
        self.total.update(str(int(self.total.value) + value[1]))
        yield self.total.value


def totals(storage: Path, function: Any, source: dict[str, Any], step: dict[str, Any]) -> StreamEnvironment:
    env = StreamEnvironment("totals", storage=str(storage), **SETTINGS)
    values = CollectionSource([("ab"[n % 2], n) for n in range(20)])
    stream = env.from_source(values, watermarks=Watermarks.bounded(seconds=0, timestamp=lambda v: v[1]), **source)
    stream.key_by(0).process(function, **step).print(name="out")
    return env


def test_a_program_whose_steps_have_other_names(tmp_path: Path) -> None:
    totals(tmp_path, Numbers(), {"name": "in"}, {"name": "totals"}).execute()
    renamed = totals(
        tmp_path, Numbers(), {"name": "numbers", "previous_names": ["in"]}, {"name": "sums", "previous_names": ["totals"]}
    )
    replayed = snapshots.replay(tmp_path, 3, env=renamed)
    assert replayed.reproduced, replayed.verdict
    assert replayed.notes == []
    assert replayed.step("numbers").records_in == 7
    assert replayed.step("sums").changed == 2


def test_state_that_migrates(tmp_path: Path) -> None:
    """Yesterday's epoch with today's program: its state is migrated in the shadow, and the job's stays as it is."""
    totals(tmp_path, Numbers(), {"name": "in"}, {"name": "totals"}).execute()
    before = contents(str(tmp_path))
    replayed = snapshots.replay(tmp_path, 3, env=totals(tmp_path, Texts(), {"name": "in"}, {"name": "totals"}))
    assert contents(str(tmp_path)) == before
    assert replayed.notes == ["the state totals.total was migrated for this program"]
    first = replayed.step("totals").events[0]
    assert first.before == {"total": str(sum(n for n in range(7) if "ab"[n % 2] == first.key))}
    assert replayed.reproduced is False  # it is written differently now


# --- small parts ---------------------------------------------------------------------------------------------------------------


def test_targets() -> None:
    assert parse_target("jobs/a@7") == ("jobs/a", 7)
    assert parse_target("s3://user@host/b@next") == ("s3://user@host/b", "next")
    assert parse_target("jobs/a") == ("jobs/a", None)
    assert parse_target("jobs/a@home") == ("jobs/a@home", None)
    assert spans([]) == ""
    assert spans([9, 3, 4, 5]) == "3 to 5, 9"


def test_a_shadow_leaves_what_is_behind_it_alone(tmp_path: Path) -> None:
    behind = open_storage(tmp_path / "behind")
    behind.create("a/one", b"1")
    behind.create("a/two", b"2")
    shadow = ShadowStorage(behind, str(tmp_path / "beside"))
    shadow.replace("a/one", b"changed")
    shadow.delete(["a/two"])
    shadow.child("a").create("three", b"3")
    with shadow.writer("b/four") as file:
        file.write(b"4")
    assert [one.path for one in shadow.list()] == ["a/one", "a/three", "b/four"]
    assert (shadow.read("a/one"), shadow.size("b/four"), shadow.read_range("a/three", 0, 9)) == (b"changed", 1, b"3")
    assert not shadow.exists("a/two")
    with pytest.raises(NotFoundError):
        shadow.read("a/two")
    with pytest.raises(FileExistsError):
        shadow.create("a/three", b"again")
    assert [one.path for one in behind.list()] == ["a/one", "a/two"]
    assert behind.read("a/one") == b"1"
