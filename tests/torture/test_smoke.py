"""A little torture, so that it is known to work."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.torture import run
from tests.torture.faults import (
    BACK_POINTS,
    DRIVER_POINTS,
    LOCAL,
    MAKER_POINTS,
    RESCALE_POINTS,
    STOPS,
    WORKER_POINTS,
    campaigns,
)
from tests.torture.oracle import JOBS


@pytest.mark.spark
@pytest.mark.slow
def test_three_kills(capsys: pytest.CaptureFixture[str]) -> None:
    code = run.torture(3, 5, None, jobs=["ledger"], limit_s=250)
    told = capsys.readouterr().out
    assert code == 0, told
    assert told.splitlines()[-1] == "kills=3 lost=0 duplicated=0"


def test_the_plan_is_a_function_of_the_seed_and_covers_every_place() -> None:
    first, second = (list(islice(campaigns(7, list(JOBS)), 9)) for _ in range(2))
    assert first == second
    rounds = [one for campaign in first for one in campaign.rounds]
    places = {fault.place for one in rounds for fault in [*one.faults, *([one.at] if one.at is not None else [])]}
    assert places >= {*DRIVER_POINTS, *WORKER_POINTS, *STOPS, *MAKER_POINTS, *BACK_POINTS, *RESCALE_POINTS}
    assert {campaign.job for campaign in first} == set(JOBS)
    assert LOCAL in {campaign.master for campaign in first}
