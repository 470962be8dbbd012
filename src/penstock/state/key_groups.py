"""Which partition owns a key.

Law: every key is in exactly one group, every group in exactly one partition, and the groups of a partition are contiguous. A
key's group never changes, for `max_parallelism` and the key hash are kept with the state; a change of parallelism moves whole
ranges of groups. State that is not kept by key has groups of its own making: see `SharedGroup` and `DealtGroups`.

The key hash has a version, because what an older Penstock wrote is grouped by an older one (decision 22):

    1  crc32. Neighbouring keys fall together.
    2  crc32, mixed by two multiplications. What new jobs get.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import msgspec
import numpy as np

from penstock.errors import ConfigError, StateError

LARGEST_MAX_PARALLELISM = 32768
FEWEST_BY_DEFAULT, EACH_BY_DEFAULT = 128, 8
"""Of a new job: key groups at least, and for each partition. With 8, no partition has more than 9/8 of its share of groups."""

CRC32, MIXED = 1, 2
NEW_JOBS = MIXED

_FIRST, _SECOND = 0x9E3779B1, 0x85EBCA77
_FEW = 24
"""Up to this many keys, one after another is faster than numpy."""

Groups = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class KeyGroups:
    """The key groups of a job: how many, and by which version of the hash a key is in one of them."""

    count: int
    hash: int

    def __post_init__(self) -> None:
        if self.hash not in (CRC32, MIXED):
            raise StateError(
                f"keys are grouped by key hash {self.hash}; this Penstock knows {CRC32} and {MIXED}",
                hint="use the version of Penstock that wrote it, or a newer one",
            )

    def __str__(self) -> str:
        """For people: the hash is only mentioned if it is not that of new jobs."""
        uneven = f", key hash {self.hash}: keys may be spread unevenly, `penstock savepoint-rewrite` fixes that"
        return f"{self.count} key groups" + (uneven if self.hash != NEW_JOBS else "")

    def of(self, encoded: bytes, namespace: int = 0) -> int:
        """The group of an encoded key. Its last `namespace` bytes (a window, say) are no part of the key."""
        number = crc32(encoded[:-namespace] if namespace else encoded)
        if self.hash == MIXED:
            number *= _FIRST
            number = (number ^ number >> 32) * _SECOND >> 32 & 0xFFFFFFFF
        return number % self.count

    def of_many(self, encoded: Sequence[bytes], namespace: int = 0) -> Groups:
        """The group of each of several encoded keys: as `of`, by numpy if they are not few."""
        if len(encoded) <= _FEW:
            return np.array([self.of(key, namespace) for key in encoded], dtype=np.int64)
        keys = [key[:-namespace] for key in encoded] if namespace else encoded
        numbers = np.fromiter(map(crc32, keys), dtype=np.uint64, count=len(keys))
        if self.hash == MIXED:
            numbers *= np.uint64(_FIRST)
            numbers ^= numbers >> np.uint64(32)
            numbers *= np.uint64(_SECOND)  # in 64 bits that wrap around: those that are taken are below
            numbers >>= np.uint64(32)
        return (numbers % np.uint64(self.count)).astype(np.int64)


SHARED_GROUP = 65535
"""Where broadcast state is: above the groups of all keys. Every partition has a copy of it; that of the last one counts."""

ANY_GROUP = range(SHARED_GROUP + 1)
"""Whatever groups there are: of the files of a partition, what is in them."""

POSITIONS = 1 << 16


class SharedGroup(KeyGroups):
    """Of broadcast state: all of it is in one group."""

    def of(self, encoded: bytes, namespace: int = 0) -> int:
        return SHARED_GROUP

    def of_many(self, encoded: Sequence[bytes], namespace: int = 0) -> Groups:
        return np.full(len(encoded), SHARED_GROUP, dtype=np.int64)


class DealtGroups(KeyGroups):
    """Of operator state: a key is an array that ends with a position from 0 to 65535, of which each group has a stretch. So
    elements stay with their partition, and are spread evenly over other partitions, or other groups."""

    def of(self, encoded: bytes, namespace: int = 0) -> int:
        position: int = msgspec.msgpack.decode(encoded)[-1]
        return position * self.count // POSITIONS

    def of_many(self, encoded: Sequence[bytes], namespace: int = 0) -> Groups:
        return np.array([self.of(key) for key in encoded], dtype=np.int64)

    def position(self, group: int) -> int:
        """The first position of a group."""
        return -(-group * POSITIONS // self.count)


def grouping(scope: str, key_groups: KeyGroups) -> KeyGroups:
    """How the keys of a state of this scope are grouped, in a job with these groups."""
    kind = {"broadcast": SharedGroup, "operator": DealtGroups}.get(scope)
    return key_groups if kind is None else kind(key_groups.count, key_groups.hash)


def kept_groups_of(partition: int, parallelism: int, max_parallelism: int) -> range:
    """The groups of which a snapshot takes the entries from a partition: its own, and from the last one also the shared group."""
    own = groups_of(partition, parallelism, max_parallelism)
    return range(own.start, ANY_GROUP.stop) if partition == parallelism - 1 else own


def default_max_parallelism(parallelism: int) -> int:
    """The key groups of a new job that does not say how many: a power of two.

    >>> [default_max_parallelism(n) for n in (1, 16, 17, 64)]
    [128, 128, 256, 512]
    """
    wanted = 1 << (parallelism * EACH_BY_DEFAULT - 1).bit_length()
    return min(max(wanted, FEWEST_BY_DEFAULT), LARGEST_MAX_PARALLELISM)


def partition_of(group: int, parallelism: int, max_parallelism: int) -> int:
    """The partition that owns a group.

    >>> [partition_of(group, 3, 128) for group in (42, 43, 127)]
    [0, 1, 2]
    """
    return group * parallelism // max_parallelism


def groups_of(partition: int, parallelism: int, max_parallelism: int) -> range:
    """The groups a partition owns: the inverse of `partition_of`.

    >>> groups_of(1, 3, 128)
    range(43, 86)
    """
    check_parallelism(parallelism, max_parallelism)
    if not 0 <= partition < parallelism:
        raise ConfigError(f"there is no partition {partition} of {parallelism}")
    return range(-(-partition * max_parallelism // parallelism), -(-(partition + 1) * max_parallelism // parallelism))


def check_parallelism(parallelism: int, max_parallelism: int) -> None:
    """Refuse what would leave a partition without groups, or a group without a place in a store key."""
    if not 1 <= max_parallelism <= LARGEST_MAX_PARALLELISM:
        raise ConfigError(
            f"max_parallelism is {max_parallelism}",
            hint=f"choose 1 to {LARGEST_MAX_PARALLELISM}; it is fixed for the life of a job's state",
        )
    if not 1 <= parallelism <= max_parallelism:
        raise ConfigError(
            f"parallelism is {parallelism}, max_parallelism {max_parallelism}",
            hint="parallelism must be at least 1 and at most max_parallelism",
        )
