"""How much an epoch takes, learned from epochs of a simulated cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.epochs.planning.admission import Admission


def settle(cost: Callable[[int], float], *, epochs: int = 60) -> int:
    """The size epochs come to when there is always more to read."""
    admission = Admission(target_ms=1000, max_records=1_000_000, max_bytes=1 << 30, readers=2)
    for _ in range(epochs):
        records = admission.limits(1).records
        admission.learn(records, cost(records))
    return admission.limits(1).records


@pytest.mark.parametrize("per_record", [1e-3, 1e-4, 1e-5])
def test_epochs_come_to_the_target(per_record: float) -> None:
    assert 0.5 <= settle(lambda n: 0.05 + n * per_record) * per_record <= 1.2


def test_an_epoch_that_costs_more_than_the_target_whatever_it_reads_does_not_shrink_to_nothing() -> None:
    assert settle(lambda n: 1.3 + n * 1e-5) >= 50_000


def test_a_slow_first_epoch_is_forgotten() -> None:
    cold = iter([10.0, 6.0, 5.0])
    assert settle(lambda n: next(cold, 0.1) + n * 1e-5) >= 50_000


def test_a_slow_function_gets_small_epochs() -> None:
    assert settle(lambda n: 0.05 + n * 5e-3) <= 250


def test_a_part_full_epoch_does_not_say_that_more_would_fit() -> None:
    admission = Admission(target_ms=1000, max_records=1_000_000, max_bytes=1 << 30, readers=2)
    before = admission.limits(1).records
    for _ in range(20):
        admission.learn(10, 0.01)
    assert admission.limits(1).records == before
