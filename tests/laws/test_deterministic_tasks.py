"""Law: deterministic tasks. However its frames arrive, a retried task does the same again."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from penstock.executors.inline import InlineExecutor
from penstock.ids import Epoch
from penstock.runtime import services
from penstock.runtime.messages import EpochOrder, TaskReport, decode_reports
from penstock.runtime.spill import FrameBuffer
from penstock.state.files.durable import read_entries
from tests.laws.trying import breaks, check_exact, run


class Retrying(InlineExecutor):
    """Runs the second stage three times, with frames in another order each time, and compares state and output."""

    def __init__(self) -> None:
        super().__init__()
        self._dice = random.Random(1)

    def run(self, order: EpochOrder) -> list[TaskReport]:
        sent: list[list[bytes]] = [[], []]
        for partition in range(2):
            for target, frame in self._task(order, 0, partition).frames(None):
                sent[target].append(frame)
        reports: list[TaskReport] = []
        for partition in range(2):
            attempts = []
            for _ in range(3):
                self._dice.shuffle(sent[partition])
                attempts.append(decode_reports(self._task(order, 1, partition).report(sent[partition])))
            assert self._said(attempts[0][0]) == self._said(attempts[1][0]) == self._said(attempts[2][0])
            reports += attempts[0]
        return reports

    def _said(self, report: TaskReport) -> object:
        """What a report says, apart from names and durations."""
        assert self._job is not None
        state = None
        if report.state is not None:
            blocks = read_entries(self._job.storage, report.state, groups=range(128), keep=lambda number: True)
            state = [(list(keys), list(values)) for keys, values in blocks]
        rows = [file["checksum"] for found in report.committables.values() for file in msgspec.to_builtins(found)["files"]]
        return state, rows, report.watermarks, report.next_due, {step: m.records_in for step, m in report.metrics.items()}


def check_retries(folder: Path) -> None:
    run(folder, Retrying(), parallelism=2)
    check_exact(folder)


def test_a_retried_task_does_the_same_again(tmp_path: Path) -> None:
    check_retries(tmp_path)


def test_it_fails_when_frames_are_taken_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def as_they_come(self: FrameBuffer) -> object:
        return iter([frame for frame, _, _ in self._frames])

    monkeypatch.setattr(FrameBuffer, "in_order", as_they_come)
    breaks(lambda: check_retries(tmp_path))


def test_a_committed_epoch_can_be_run_again(tmp_path: Path) -> None:
    """From the state before it and the ranges in its manifest: the same number of records, the same new state."""
    seen: dict[Epoch, object] = {}

    class Again(Retrying):
        def run(self, order: EpochOrder) -> list[TaskReport]:
            reports = super().run(order)
            again = super().run(order)
            said = [self._said(r) for r in sorted(reports, key=lambda r: (r.stage, r.partition))]
            assert said == [self._said(r) for r in sorted(again, key=lambda r: (r.stage, r.partition))]
            seen[order.epoch] = said
            return reports

    run(tmp_path, Again())
    assert len(seen) > 5


def test_it_fails_when_time_is_read_from_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processing time is the epoch's, not the moment's."""
    ticks = iter(range(10**6))
    told: list[int] = []
    real = services.Services.__init__

    def ticking(self: services.Services, *args: object, **kwargs: object) -> None:
        real(self, *args, **kwargs)  # type: ignore[arg-type]
        told.append(self.processing_time)

    monkeypatch.setattr(services.Services, "__init__", ticking)
    run(tmp_path / "a", Retrying())
    assert len(set(told)) < len(told) / 4

    def clock(self: services.Services, *args: object, **kwargs: object) -> None:
        real(self, *args, **kwargs)  # type: ignore[arg-type]
        self.processing_time = next(ticks)
        told.append(self.processing_time)

    told.clear()
    monkeypatch.setattr(services.Services, "__init__", clock)
    run(tmp_path / "b", Retrying())
    assert len(set(told)) == len(told)
