"""Law: one writer. A driver that has a successor commits nothing, however late it finds out."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.epochs.committing import commit_protocol, group_commit
from penstock.epochs.starting import takeover
from penstock.epochs.starting.sequence import TakeOverSequence
from penstock.epochs.starting.takeover import Taken
from penstock.errors import FencedError
from penstock.failpoints import fail_point
from penstock.jobs import terms as fencing
from penstock.jobs.manifest import Manifest
from tests.laws.trying import Interrupted, breaks, check_exact, run


def check_successor(folder: Path, *, stopped_at: str, epochs_of_successor: int | None, patch: pytest.MonkeyPatch) -> None:
    """A driver stops at a place in its third epoch, a second one takes over, the first goes on."""
    passed = 0
    real, real_commit = fail_point, commit_protocol.commit_sinks
    late: list[int] = []

    def successor() -> None:
        if epochs_of_successor is None:
            run(folder, take_over=True)
            return
        stop = Interrupted(epochs_of_successor + 1, _stop)
        with pytest.raises(Stopped):
            run(folder, stop, take_over=True)

    def committed(committers: object, committables: object, epoch: int) -> None:
        late.append(epoch)
        real_commit(committers, committables, epoch)  # type: ignore[arg-type]

    def point(name: str) -> None:
        nonlocal passed
        real(name)
        if name == stopped_at:
            passed += 1
            if passed == 4:
                patch.setattr(commit_protocol, "fail_point", real)
                successor()
                patch.setattr(group_commit, "commit_sinks", committed)

    patch.setattr(commit_protocol, "fail_point", point)
    with pytest.raises(FencedError):
        run(folder)
    assert not late, f"it committed sinks of epochs {late}"
    patch.setattr(group_commit, "commit_sinks", real_commit)
    if epochs_of_successor is not None:
        run(folder)
    check_exact(folder)


class Stopped(BaseException):
    pass


def _stop() -> None:
    raise Stopped


PLACES = [(place, epochs) for place in ("manifest:before", "manifest:after") for epochs in (0, 2, 7, None)]


@pytest.mark.parametrize(("place", "epochs"), PLACES)
def test_a_driver_that_wakes_up_late_commits_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, epochs: int | None
) -> None:
    check_successor(tmp_path, stopped_at=place, epochs_of_successor=epochs, patch=monkeypatch)


def test_it_fails_without_the_look_at_epochs_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_protocol, "check_not_fenced", lambda storage, epoch: None)
    breaks(lambda: check_successor(tmp_path, stopped_at="manifest:after", epochs_of_successor=2, patch=monkeypatch))


def test_it_fails_with_a_look_at_the_next_epoch_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.ids import Epoch
    from penstock.jobs import paths
    from penstock.jobs.terms import fenced
    from penstock.storage import Storage

    def next_only(storage: Storage, epoch: Epoch) -> None:
        if storage.exists(paths.manifest(Epoch(epoch + 1))):
            raise fenced(epoch)

    monkeypatch.setattr(commit_protocol, "check_not_fenced", next_only)
    breaks(lambda: check_successor(tmp_path, stopped_at="manifest:before", epochs_of_successor=7, patch=monkeypatch))


def test_it_fails_when_a_manifest_of_another_driver_is_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_protocol, "_adopt", lambda storage, manifest, path: None)
    monkeypatch.setattr(commit_protocol, "check_not_fenced", lambda storage, epoch: None)
    breaks(lambda: check_successor(tmp_path, stopped_at="manifest:before", epochs_of_successor=0, patch=monkeypatch))


def test_every_start_commits_an_epoch_of_its_own(tmp_path: Path) -> None:
    terms = []
    for _ in range(3):
        with pytest.raises(Stopped):
            run(tmp_path, Interrupted(2, _stop))
        terms.append(max((tmp_path / "storage" / "terms").iterdir()).name)
    assert len(set(terms)) == 3


def test_it_fails_without_a_take_over_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A successor that has committed nothing yet does not stop the driver before it."""

    def no_take_over(self: TakeOverSequence, taken: Taken, back: object, commits: object) -> Manifest:
        assert taken.before is not None
        return taken.before

    def successor() -> None:
        with monkeypatch.context() as patch, pytest.raises(Stopped):
            patch.setattr(TakeOverSequence, "_commit_epoch", no_take_over)
            run(tmp_path, Interrupted(1, _stop), take_over=True)

    def check() -> None:
        with pytest.raises(FencedError):
            run(tmp_path, Interrupted(3, successor))

    breaks(check)


def test_a_start_that_others_have_overtaken_goes_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has taken a term; a second one takes the next and commits; the first looks for the head."""
    with pytest.raises(Stopped):
        run(tmp_path, Interrupted(3, _stop))
    real = fencing.find_head

    def late(storage: object, **options: object) -> object:
        monkeypatch.setattr(takeover, "find_head", real)
        with pytest.raises(Stopped):
            run(tmp_path, Interrupted(3, _stop), take_over=True)
        return real(storage, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(takeover, "find_head", late)
    with pytest.raises(FencedError):
        run(tmp_path)
    assert len(list((tmp_path / "storage" / "terms").iterdir())) == 3
    run(tmp_path)
    check_exact(tmp_path)


def test_terms_whose_files_are_gone_are_not_taken_again(tmp_path: Path) -> None:
    for _ in range(3):
        with pytest.raises(Stopped):
            run(tmp_path, Interrupted(3, _stop))
    for path in (tmp_path / "storage" / "terms").iterdir():
        path.unlink()
    run(tmp_path)
    assert sorted(path.stem for path in (tmp_path / "storage" / "terms").iterdir()) == ["000001", "000004"]
    check_exact(tmp_path)
