from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.state.entries import store_keys

groups = st.integers(0, 32767)
states = st.integers(0, 65535)
times = st.integers(-(2**63), 2**63 - 1)


@given(groups, states, times, st.binary())
def test_a_timer_key_can_be_split(group: int, state: int, time: int, key: bytes) -> None:
    stored = store_keys.timer_key(group, state, time, key)
    assert store_keys.split_timer_key(stored) == (group, state, time, key)
    assert stored.startswith(store_keys.value_prefix(group, state) + store_keys.sortable_time(time))
    assert store_keys.group_of_store_key(stored) == group
    assert store_keys.state_id_of_store_key(stored) == state


@given(st.lists(st.tuples(groups, states, times)))
def test_timers_sort_as_their_times_do(timers: list[tuple[int, int, int]]) -> None:
    assert sorted(store_keys.timer_key(*t, b"") for t in timers) == [store_keys.timer_key(*t, b"") for t in sorted(timers)]
    assert all(store_keys.time_from_sortable(store_keys.sortable_time(t)) == t for _, _, t in timers)


@given(st.binary(max_size=3), st.binary(max_size=5))
def test_the_end_of_a_prefix(prefix: bytes, key: bytes) -> None:
    end = store_keys.prefix_end(prefix)
    assert key.startswith(prefix) == (prefix <= key and (end is None or key < end))
