"""How keys are spread over partitions (decision 22).

The families below are of keys as people have them. A hash that was chance itself would leave a partition empty in about one of a
thousand cases; that none of these is one of them is luck, and stays so, because the hash does not change. `OTHERS` were not
looked at when the hash was chosen. For all of them the spread over groups must be like that of chance.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np
import pytest

from penstock.state.encoding.keys import encode_key
from penstock.state.key_groups import CRC32, NEW_JOBS, Groups, KeyGroups, default_max_parallelism

PARTITIONS = range(2, 65)
MOST = 100 * PARTITIONS[-1]
START = datetime(2024, 1, 1, tzinfo=UTC)
random = Random(7)
RANDOM_UUIDS = [str(uuid.UUID(int=random.getrandbits(128), version=4)) for _ in range(MOST)]

FAMILIES: dict[str, Callable[[int], Any]] = {
    "digits": str,
    "padded digits": lambda n: f"{n:08d}",
    "hexadecimal": lambda n: f"{n:x}",
    "prefix": lambda n: f"sensor-{n}",
    "prefix and suffix": lambda n: f"user:{n}:eu",
    "two numbers": lambda n: f"building-{n // 10}/room-{n % 10}",
    "letters": lambda n: "".join(chr(97 + n // 26**digit % 26) for digit in (2, 1, 0)),
    "e-mail": lambda n: f"user{n}@example.com",
    "addresses": lambda n: f"10.0.{n // 256}.{n % 256}",
    "uuids": RANDOM_UUIDS.__getitem__,
    "uuids in order": lambda n: str(uuid.UUID(int=(0x018F << 112) + n)),
    "ints": lambda n: n,
    "negative ints": lambda n: -n - 1,
    "even ints": lambda n: 2 * n,
    "hundreds": lambda n: 100 * n,
    "millions": lambda n: 1_000_000 * n,
    "ints of 65,536": lambda n: 65_536 * n,
    "minutes in milliseconds": lambda n: 1_700_000_000_000 + 60_000 * n,
    "floats": lambda n: n / 10,
    "whole floats": float,
    "pairs of ints": lambda n: (n // 20, n % 20),
    "pairs": lambda n: (f"shop-{n % 10}", n // 10),
    "triples": lambda n: ("eu", n % 7, f"t{n // 7}"),
    "dates": lambda n: str(date(2000, 1, 1) + timedelta(days=n)),
    "hours": lambda n: START + timedelta(hours=n),
    "bytes": lambda n: n.to_bytes(4, "big"),
    "bytes, the least first": lambda n: n.to_bytes(8, "little"),
}

OTHERS: dict[str, Callable[[int], Any]] = {
    "device": lambda n: f"device_{n:05d}",
    "plates": lambda n: f"{chr(65 + n % 26)}{chr(65 + n // 26 % 26)}-{n // 676:03d}",
    "squares": lambda n: n * n,
    "odd ints": lambda n: 2 * n + 1,
    "ints from 10,000": lambda n: 10_000 + n,
    "quarters": lambda n: n / 4,
    "ints of 1,024": lambda n: 1_024 * n,
    "seconds": lambda n: START + timedelta(seconds=n),
    "nested pairs": lambda n: (("a", n % 3), n // 3),
    "reversed digits": lambda n: str(n)[::-1] + "x",
    "long texts": lambda n: "x" * 200 + str(n),
    "order and line": lambda n: (n // 5 + 1_000_000, n % 5),
}


ALL = FAMILIES | OTHERS


@lru_cache(maxsize=8)
def groups_of_family(name: str, most: int, version: int = NEW_JOBS) -> Groups:
    encoded = [encode_key(ALL[name](n)) for n in range(MOST)]
    assert len(set(encoded)) == MOST
    return KeyGroups(most, version).of_many(encoded)


def partitions(name: str, parallelism: int, each: int, version: int = NEW_JOBS) -> list[int]:
    """How many of `each` keys a partition are in each partition of a new job."""
    most = default_max_parallelism(parallelism)
    groups = groups_of_family(name, most, version)[: each * parallelism]
    return [int(found) for found in np.bincount(groups * parallelism // most, minlength=parallelism)]


@pytest.mark.parametrize("name", FAMILIES)
def test_no_partition_has_much_more_than_its_share(name: str) -> None:
    for parallelism in PARTITIONS:
        assert max(partitions(name, parallelism, 100)) <= 150, parallelism


@pytest.mark.parametrize("name", FAMILIES)
def test_no_partition_is_empty(name: str) -> None:
    for parallelism in PARTITIONS:
        assert min(partitions(name, parallelism, 10)) > 0, parallelism


def test_few_keys_are_in_more_than_one_partition() -> None:
    """What a new user does first. By crc32, all sensors were in one partition, and sixteen of twenty numbers."""
    assert partitions("prefix", 2, 10, CRC32) == [0, 20]
    assert partitions("ints", 2, 10, CRC32) == [16, 4]
    for name in ("prefix", "ints", "digits", "letters"):
        assert min(partitions(name, 2, 10)) >= 6, name
        assert min(partitions(name, 4, 5)) >= 2, name


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("most", [128, 1024])
def test_groups_are_filled_as_by_chance(name: str, most: int) -> None:
    """Chi squared: neither uneven nor, as by a pattern that other keys would not fit, all too even."""
    found = np.bincount(groups_of_family(name, most), minlength=most)
    deviation = float((((found - MOST / most) ** 2) / (MOST / most)).sum() - (most - 1)) / (2 * (most - 1)) ** 0.5
    assert -4.5 < deviation < 4.5


@pytest.mark.parametrize("bit", range(0, 32, 5))
def test_a_bit_of_a_key_moves_every_group(bit: int) -> None:
    """Keys that differ in one bit only are in the same half of the groups as often as not."""
    count = 4_000
    one = [(n * 2_654_435_761 % 2**32).to_bytes(4, "big") for n in range(count)]
    other = [(int.from_bytes(key, "big") ^ 1 << bit).to_bytes(4, "big") for key in one]
    groups = KeyGroups(128, NEW_JOBS)
    together = int(np.count_nonzero((groups.of_many(one) < 64) == (groups.of_many(other) < 64)))
    assert 0.45 * count < together < 0.55 * count
