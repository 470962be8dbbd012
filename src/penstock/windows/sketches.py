"""How many different values there are, approximately: a set of hashes while they are few, then a HyperLogLog.

Laws:
- A value's hash is the same in every process: it is made from the value's encoding as a key.
- The estimate is a function of the set of values: not of their order, nor of how they were merged.
"""

from __future__ import annotations

from hashlib import blake2b
from math import log
from typing import Any

import numpy as np

from penstock.state.encoding.keys import encode_key

Distinct = set[int] | bytes
"""Up to `EXACT` hashes; or 4096 registers, each with the highest rank that was seen of its hashes."""

EXACT = 256
PRECISION = 12
REGISTERS = 1 << PRECISION
_REST = 64 - PRECISION
_MASK = (1 << _REST) - 1
_ALPHA = 0.7213 / (1 + 1.079 / REGISTERS)


def hash_of(value: Any) -> int:
    """64 bits."""
    return int.from_bytes(blake2b(encode_key(value), digest_size=8).digest(), "big")


def add_distinct(held: Distinct, value: Any) -> Distinct:
    return _add(held, hash_of(value))


def merge_distinct(left: Distinct, right: Distinct) -> Distinct:
    """What has seen the values of both."""
    if isinstance(left, bytes) and isinstance(right, bytes):
        return np.maximum(np.frombuffer(left, np.uint8), np.frombuffer(right, np.uint8)).tobytes()
    if isinstance(left, bytes):
        left, right = right, left
    for one in sorted(left):
        right = _add(right, one) if isinstance(right, bytes) else _add(set(right), one)
    return right


def count_distinct(held: Distinct) -> int:
    if not isinstance(held, bytes):
        return len(held)
    registers = np.frombuffer(held, np.uint8)
    estimate = _ALPHA * REGISTERS * REGISTERS / float(np.sum(np.exp2(-registers.astype(np.float64))))
    empty = int(np.count_nonzero(registers == 0))
    if estimate <= 2.5 * REGISTERS and empty:
        estimate = REGISTERS * log(REGISTERS / empty)
    return round(estimate)


def _add(held: Distinct, one: int) -> Distinct:
    if not isinstance(held, bytes):
        held.add(one)
        return held if len(held) <= EXACT else _registers(held)
    register, rank = _place(one)
    if rank <= held[register]:
        return held
    return held[:register] + bytes((rank,)) + held[register + 1 :]


def _registers(hashes: set[int]) -> bytes:
    registers = bytearray(REGISTERS)
    for one in hashes:
        register, rank = _place(one)
        registers[register] = max(registers[register], rank)
    return bytes(registers)


def _place(one: int) -> tuple[int, int]:
    return one >> _REST, _REST - (one & _MASK).bit_length() + 1
