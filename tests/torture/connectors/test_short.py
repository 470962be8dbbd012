"""A short campaign over connectors, so that CI has one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.servers.packages import UnavailableError
from tests.torture.connectors.campaign import Outcome, judge, run_campaign


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_five_kills_between_topics(tmp_path: Path) -> None:
    said: list[str] = []
    try:
        outcome = run_campaign(tmp_path, 6, 11, said.append, limit_s=400)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    told = "\n".join(said)
    assert (outcome.lost, outcome.duplicated, outcome.problems) == (0, 0, []), told
    assert sum(outcome.kills.values()) == 6
    assert set(outcome.kills) == {"driver", "worker", "broker"}
    assert outcome.messages > 1000


def test_the_judge_sees_what_is_wrong() -> None:
    def judged(rows: list[tuple[int, int]]) -> Outcome:
        outcome = Outcome()
        judge([{"key": "a", "count": count, "total": total} for count, total in rows], Counter({"a": 3}), outcome)
        return outcome

    right = judged([(1, 1), (2, 3), (3, 6)])
    assert (right.lost, right.duplicated, right.problems) == (0, 0, [])
    assert judged([(1, 1), (3, 6)]).lost == 1
    assert judged([(1, 1), (2, 3), (2, 3), (3, 6)]).duplicated == 1
    assert judged([(2, 3), (1, 1), (3, 6)]).problems == ["a is out of order"]
    assert judged([(1, 1), (2, 3), (3, 7)]).problems == ["a total of a is wrong"]
    assert judged([(1, 1), (2, 3), (3, 6), (4, 10)]).problems == ["a total of a is wrong"]
