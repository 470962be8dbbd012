"""A short campaign of `tests/torture/reads.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.reads import campaign, free_port


@pytest.mark.slow
def test_reads_while_job_and_server_are_killed(tmp_path: Path) -> None:
    seen = campaign(tmp_path / "job", kills=3, rate=200, seed=5, pause_s=0.5, port=free_port())
    assert seen.problems == []
    assert len(seen.epochs) > 3
    assert seen.events > 3
