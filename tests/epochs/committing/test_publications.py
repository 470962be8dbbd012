"""Numbers under which epochs are published at least once, before anybody knows when they will be committed."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from penstock.epochs.starting.rewind import first_publication, last_publication, publication_of
from penstock.ids import Epoch, Term
from penstock.runtime.messages import EpochOrder


@pytest.mark.parametrize("settled", [1, 999_990, 5_000_000])
def test_they_grow_with_every_attempt_and_stay_within_their_epoch(settled: int) -> None:
    first = EpochOrder(
        epoch=Epoch(8),
        term=Term(3),
        plan=settled + 1,
        head=Epoch(7),
        settled=settled,
        processing_time=0,
        sources={},
        watermarks={},
    )
    orders = [msgspec.structs.replace(first, plan=settled + number) for number in range(1, 30)]
    numbers = [publication_of(order) for order in orders]
    assert all(before < after for before, after in pairwise(numbers))
    assert first_publication(Epoch(8), "at-least-once") <= numbers[0] < numbers[-1] <= last_publication(Epoch(8), "at-least-once")
