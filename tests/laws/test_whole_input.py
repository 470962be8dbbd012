"""Law: whole input. A task with a part of its input fails; an epoch of disagreeing tasks is not committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.epochs import loop
from penstock.errors import EpochFailedError
from penstock.executors.inline import InlineExecutor
from penstock.runtime import task as tasks
from penstock.runtime.frames import is_trailer
from penstock.runtime.messages import EpochOrder, TaskReport, decode_reports
from tests.laws.trying import breaks, check_exact, run

Sent = list[list[bytes]]


class Tampering(InlineExecutor):
    """Two stages; `tamper` changes what the second receives. The third epoch only: later ones are as they should be."""

    def __init__(self, tamper: Callable[[Sent], None]) -> None:
        super().__init__()
        self._tamper = tamper
        self._epochs = 0

    def run(self, order: EpochOrder) -> list[TaskReport]:
        self._epochs += 1
        sent = self.send(order)
        if self._epochs == 3:
            self._tamper(sent)
        return self.receive(order, sent)

    def send(self, order: EpochOrder, partitions: tuple[int, ...] = (0, 1)) -> Sent:
        sent: Sent = [[], []]
        for partition in partitions:
            for target, frame in self._task(order, 0, partition).frames(None):
                sent[target].append(frame)
        return sent

    def receive(self, order: EpochOrder, sent: Sent) -> list[TaskReport]:
        reports: list[TaskReport] = []
        for partition in range(2):
            reports += decode_reports(self._task(order, 1, partition).report(sent[partition]))
        return reports


class Rerun(Tampering):
    """The second target reads another attempt of the first upstream task than the first target."""

    def __init__(self) -> None:
        super().__init__(lambda sent: None)

    def run(self, order: EpochOrder) -> list[TaskReport]:
        first, other, again = self.send(order, (0,)), self.send(order, (1,)), self.send(order, (0,))
        return self.receive(order, [first[0] + other[0], again[1] + other[1]])


def lose_a_frame(sent: Sent) -> None:
    sent[1].remove(next(frame for frame in sent[1] if not is_trailer(frame)))


def repeat_a_frame(sent: Sent) -> None:
    sent[0].append(next(frame for frame in sent[0] if not is_trailer(frame)))


def end_early(sent: Sent) -> None:
    del sent[1][len(sent[1]) // 2 :]


def lose_everything(sent: Sent) -> None:
    sent[1].clear()


def check_whole(folder: Path, executor: InlineExecutor) -> None:
    """The epoch fails, and run again as it should be gives the right answer."""
    with pytest.raises(EpochFailedError):
        run(folder, executor)
    run(folder)
    check_exact(folder)


TAMPERS = [lose_a_frame, repeat_a_frame, end_early, lose_everything]


@pytest.mark.parametrize("tamper", TAMPERS)
def test_a_task_without_its_whole_input_fails(tmp_path: Path, tamper: Callable[[Sent], None]) -> None:
    check_whole(tmp_path, Tampering(tamper))


@pytest.mark.parametrize("tamper", TAMPERS)
def test_it_fails_without_the_look_at_trailers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tamper: Callable[[Sent], None]
) -> None:
    monkeypatch.setattr(tasks, "check_whole", lambda trailers, counts, upstreams, where: None)
    monkeypatch.setattr(loop, "check_reports", lambda job, reports, laps: None)
    breaks(lambda: check_whole(tmp_path, Tampering(tamper)))


def test_consumers_of_different_attempts_are_not_committed(tmp_path: Path) -> None:
    check_whole(tmp_path, Rerun())


def test_it_fails_without_the_agreement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "check_reports", lambda job, reports, laps: None)
    breaks(lambda: check_whole(tmp_path, Rerun()))
