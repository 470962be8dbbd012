"""What counts as the time of a recovery."""

from __future__ import annotations

import pytest
from harness.contenders import ContenderError
from harness.faults import SOON_S, recovered


def test_the_first_commit_after_the_kill() -> None:
    assert recovered([1, 2, 3, 10, 11], killed=3.5) == 6.5


def test_what_was_under_way_does_not_count() -> None:
    """An epoch is committed just after the kill, and then none for a while."""
    assert recovered([1, 2, 3, 3.6, 10, 11], killed=3.5) == 6.5


def test_a_later_pause_is_not_of_the_kill() -> None:
    assert recovered([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20], killed=3.5) == 0.5
    assert 3.5 + SOON_S < 10


def test_commits_of_several_drivers_come_in_any_order() -> None:
    assert recovered([10, 11, 1, 2, 3], killed=3.5) == 6.5


def test_nothing_was_committed() -> None:
    with pytest.raises(ContenderError):
        recovered([1, 2, 3], killed=3.5)
