"""No test asserts how long something takes: machines are busy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from penstock.state.store import open_stores

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(autouse=True, scope="module")
def _stores_are_closed() -> Iterator[None]:
    """Runs in this process leave their local stores open; with more than 1,024 files open, py4j's select() fails."""
    yield
    for store in open_stores():
        if store.idle:
            store.close()
