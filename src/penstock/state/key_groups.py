"""Which partition owns a key.

Law: every key is in exactly one group, every group in exactly one partition, and the groups of a partition are contiguous. A
key's group never changes; a change of parallelism moves whole ranges of groups.
"""

from __future__ import annotations

from zlib import crc32

from penstock.errors import ConfigError

DEFAULT_MAX_PARALLELISM = 128
LARGEST_MAX_PARALLELISM = 32768


def group_of(encoded: bytes, max_parallelism: int, namespace: int = 0) -> int:
    """The key group of an encoded key. Its last `namespace` bytes (a window, say) are no part of the key."""
    return crc32(encoded[:-namespace] if namespace else encoded) % max_parallelism


def partition_of(group: int, parallelism: int, max_parallelism: int) -> int:
    """The partition that owns a group."""
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
