"""Ranges and prefixes of keys, against what Python says of the keys themselves."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.query.errors import BadRequestError
from penstock.query.key_spans import Spans, beginning, between
from penstock.state.encoding.keys import encode_key

TEXTS = st.text(alphabet="abé\uffff\U0001f600", max_size=6) | st.text(alphabet="ab", min_size=28, max_size=36)
INTEGERS = st.integers(-(2**63), 2**64 - 1) | st.integers(-300, 300) | st.sampled_from([2**8, 2**16, 2**32, -(2**15), 2**31])


def found(spans: Spans, keys: list[Any]) -> set[Any]:
    """As a scan finds them: skipping from span to span over the sorted bytes."""
    stored = sorted((encode_key(key), key) for key in set(keys))
    at: bytes | None = spans.next_start(b"")
    seen = set()
    for encoded, key in stored:
        if at is None or encoded < at:
            continue
        following = spans.next_start(encoded)
        if following != encoded:
            at = following
        elif spans.wanted(list(key) if isinstance(key, tuple) else key):
            seen.add(key)
    return seen


@given(st.lists(TEXTS), TEXTS | st.none(), TEXTS)
def test_a_range_of_texts(keys: list[str], low: str | None, high: str) -> None:
    wanted = {key for key in keys if (low is None or key >= low) and key < high}
    assert found(between(low, high), keys) == wanted


@given(st.lists(INTEGERS), INTEGERS, INTEGERS | st.none())
def test_a_range_of_integers(keys: list[int], low: int, high: int | None) -> None:
    assert found(between(low, high), keys) == {key for key in keys if key >= low and (high is None or key < high)}


@given(st.lists(TEXTS), TEXTS)
def test_a_prefix_of_texts(keys: list[str], prefix: str) -> None:
    assert found(beginning(prefix), keys) == {key for key in keys if key.startswith(prefix)}


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b"]), st.integers(0, 2))), st.integers(0, 3))
def test_a_prefix_of_tuples(keys: list[tuple[int, str, int]], first: int) -> None:
    assert found(beginning([first]), keys) == {key for key in keys if key[0] == first}
    assert found(beginning([first, "a"]), keys) == {key for key in keys if key[:2] == (first, "a")}


@pytest.mark.parametrize("bounds", [(1, "a"), (1.5, 2.5), (None, None), ([1], [2])])
def test_other_bounds_are_refused(bounds: tuple[Any, Any]) -> None:
    with pytest.raises(BadRequestError):
        between(*bounds)
