"""Epochs that run ahead of their commit, and epochs between checkpoints: what comes out does not depend on it."""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import failpoints
from penstock.config import RestartPolicy
from penstock.epochs.committing import commit_protocol, group_commit
from penstock.errors import FencedError, LayersLostError, SinkError, StorageError
from penstock.executors.inline import InlineExecutor
from penstock.jobs.terms import find_head
from penstock.runtime import committed as committed_state
from penstock.runtime.layer_cache import LayerCache
from penstock.runtime.messages import EpochOrder, TaskReport
from penstock.storage import LocalStorage, open_storage
from penstock.testing import CollectSink, VirtualClock, execute_inline
from tests.laws.test_atomic_epochs import PLACES, _die
from tests.laws.trying import Crash, check_exact, manifests, run
from tests.runtime.random_programs import scripts
from tests.runtime.test_random_programs import START, by_key, expected, program, random_settings

AHEAD: dict[str, Any] = {"pipeline": 3}
SELDOM: dict[str, Any] = {"pipeline": 2, "checkpoint_interval": timedelta(milliseconds=40)}
AT_THE_END: dict[str, Any] = {"pipeline": 0, "checkpoint_interval": timedelta(hours=1)}
WAYS = [AHEAD, SELDOM, AT_THE_END]


@random_settings
@given(
    script=scripts(max_size=15),
    cut=st.sampled_from([1, 2, 3, 7]),
    parallelism=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    pipeline=st.sampled_from([0, 1, 4]),
    interval=st.sampled_from([0, 1, 7, 100_000]),
    epochs=st.sampled_from([None, 1, 3]),
)
def test_how_epochs_are_committed_does_not_matter(
    script: list[Any], cut: int, parallelism: list[int], pipeline: int, interval: int, epochs: int | None
) -> None:
    sink = CollectSink()
    clock = VirtualClock(START)
    with tempfile.TemporaryDirectory() as storage, tempfile.TemporaryDirectory() as local:
        for turn in range(500):
            result = execute_inline(
                program(script, cut, sink),
                clock=clock,
                until=100_000,
                epochs=epochs,
                storage=storage,
                local_dir=local,
                parallelism=parallelism[turn % len(parallelism)],
                pipeline=pipeline,
                checkpoint_interval=timedelta(milliseconds=interval),
            )
            if result.finished:
                break
        else:
            raise AssertionError("the job does not come to an end")
    found = by_key(sink.results())
    sink.discard()
    assert found == expected(script)


@pytest.mark.parametrize("way", WAYS[:2], ids=["ahead", "seldom"])
@pytest.mark.parametrize("place", [*PLACES, "files:written"])
def test_a_driver_may_die_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, way: dict[str, Any]) -> None:
    monkeypatch.setattr(failpoints, "_act", _die)
    for passing in (1, 3):
        failpoints.arm(f"{place}=crash@{passing}")
        try:
            run(tmp_path, **way)
        except Crash:
            pass
        finally:
            failpoints.arm("")
    run(tmp_path, **way)
    check_exact(tmp_path)


class SlowStorage(LocalStorage):
    """Every durable write takes a moment; writes are counted, and the n-th to a place may fail."""

    pause = 0.0
    writes: list[str]
    failing: dict[str, int]

    def create(self, path: str, data: bytes, *, durable: bool = True) -> None:
        if durable:
            time.sleep(self.pause)
            self.writes.append(path)
            for part, left in list(self.failing.items()):
                if part in path:
                    self.failing[part] = left - 1
                    if left == 1:
                        raise StorageError(f"{path} was not written, on purpose")
        super().create(path, data, durable=durable)


@pytest.fixture
def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[SlowStorage]:
    SlowStorage.writes, SlowStorage.failing, SlowStorage.pause = [], {}, 0.0
    monkeypatch.setattr("penstock.api.environment.open_storage", lambda uri: SlowStorage(uri))
    return SlowStorage


def test_slow_storage_makes_larger_commits(tmp_path: Path, slow: type[SlowStorage]) -> None:
    slow.pause = 0.05
    result = run(tmp_path, pipeline=4, keep=100)
    check_exact(tmp_path)
    kept = manifests(tmp_path)
    assert sum(1 + len(manifest.earlier) for manifest in kept[1:]) == result.epochs
    assert len(kept) - 1 < result.epochs
    assert [manifest.epoch for manifest in kept] == list(range(1, len(kept) + 1))
    assert all(manifest.parent == manifest.epoch - 1 for manifest in kept[1:])
    plans = [plan for manifest in kept[1:] for plan in [*(e.plan for e in manifest.earlier), manifest.plan]]
    assert plans == sorted(set(plans))


def test_epochs_between_checkpoints_write_nothing(tmp_path: Path, slow: type[SlowStorage]) -> None:
    result = run(tmp_path, **AT_THE_END)
    check_exact(tmp_path)
    assert result.epochs > 10
    assert sum("epochs/" in path for path in slow.writes) == 2  # the take-over epoch, and the end
    assert sum(path.startswith("state/") for path in slow.writes) <= 2  # one for each partition


@pytest.mark.parametrize("place", [".delta", "epochs/"])
@pytest.mark.parametrize("count", [3, 7])
@pytest.mark.parametrize("way", WAYS[:2], ids=["ahead", "seldom"])
def test_a_commit_that_fails_takes_the_epochs_on_top_with_it(
    tmp_path: Path, slow: type[SlowStorage], place: str, count: int, way: dict[str, Any]
) -> None:
    slow.pause = 0.01
    slow.failing = {place: count}
    patient = RestartPolicy(attempts=3, first_delay=timedelta(milliseconds=1))
    result = run(tmp_path, **{**way, "restart": patient, "checkpoint_interval": timedelta(milliseconds=1)})
    check_exact(tmp_path)
    assert result.restarts <= 1
    assert place == ".delta" or result.restarts == 1 or slow.failing[place] > 0


def test_nothing_of_an_epoch_is_visible_before_its_commit(tmp_path: Path, slow: type[SlowStorage]) -> None:
    """While commits are stuck, epochs run on, and the output folder shows what is committed."""
    gate = threading.Event()
    ran: list[int] = []

    class Watching(InlineExecutor):
        def run(self, order: EpochOrder) -> list[TaskReport]:
            ran.append(order.epoch)
            if len(ran) == 3:
                head = find_head(open_storage(tmp_path / "storage"), fall_back=True).manifest
                assert head is not None
                assert head.epoch == 1
                assert len(ran) > 1
                assert all(ref.name not in head_files for ref in layers(order) for head_files in [files(head)])
                gate.set()
            return super().run(order)

    def layers(order: EpochOrder) -> list[Any]:
        return [ref for stage in order.states for state in stage for ref in state.layers]

    def files(head: Any) -> set[str]:
        return {ref.name for stage in head.state.chains for chain in stage for ref in chain}

    held = SlowStorage.create

    def create(self: SlowStorage, path: str, data: bytes, *, durable: bool = True) -> None:
        if path.endswith("0000000002.json"):
            gate.wait(20)
        held(self, path, data, durable=durable)

    slow.create = create  # type: ignore[method-assign]
    try:
        run(tmp_path, Watching(), pipeline=4)
    finally:
        slow.create = held  # type: ignore[method-assign]
    assert gate.is_set()
    check_exact(tmp_path)


@pytest.mark.parametrize("way", [{"pipeline": 2}, {"pipeline": 2, "checkpoint_interval": timedelta(hours=1)}])
def test_lost_layers_cost_an_epoch_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: type[SlowStorage], way: dict[str, Any]
) -> None:
    slow.pause = 0.02
    lost: list[int] = []

    class Forgetful(InlineExecutor):
        """Another host runs each epoch: neither memory nor files of the one before are there."""

        def run(self, order: EpochOrder) -> list[TaskReport]:
            if order.epoch in (5, 6, 11):
                committed_state._recent.clear()
                committed_state._layers.clear()
                with monkeypatch.context() as patch:
                    patch.setattr(LayerCache, "read", lambda self, ref: None)
                    reports = super().run(order)
                lost.extend(1 for report in reports if report.failure and report.failure.kind == LayersLostError.__name__)
                return reports
            return super().run(order)

    run(tmp_path, Forgetful(), **way)
    assert lost
    check_exact(tmp_path)


def test_a_sink_that_takes_long_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = commit_protocol.commit_sinks
    refused = iter([SinkError("not now"), None, None])

    def slowly(committers: Any, committables: Any, epoch: Any) -> None:
        time.sleep(0.02)
        if committables and (error := next(refused, None)) is not None:
            raise error
        real(committers, committables, epoch)

    monkeypatch.setattr(group_commit, "commit_sinks", slowly)
    result = run(tmp_path, pipeline=4, keep=100, restart=RestartPolicy(attempts=3, first_delay=timedelta(milliseconds=1)))
    check_exact(tmp_path)
    assert len(manifests(tmp_path)) - 1 < result.epochs


def test_a_driver_that_lost_commits_nothing_of_what_it_ran_ahead(tmp_path: Path) -> None:
    """A second driver takes over while epochs of the first wait."""

    class Overtaken(InlineExecutor):
        def run(self, order: EpochOrder) -> list[TaskReport]:
            while order.epoch == 5 and not done:
                with suppress(FencedError):  # while it starts, the first may still commit what had run: then it is too late
                    done.append(run(tmp_path, take_over=True).finished)
            return super().run(order)

    done: list[bool] = []
    with pytest.raises(FencedError):
        run(tmp_path, Overtaken(), pipeline=4)
    check_exact(tmp_path)
