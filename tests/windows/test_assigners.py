"""Assigners and the windows they make."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import GlobalWindows, SessionWindows, SlidingWindows, TumblingWindows
from penstock.errors import ConfigError
from penstock.ids import MAX_WATERMARK, MIN_WATERMARK
from penstock.windows import TimeWindow
from penstock.windows.operators.merging import InFlight, merge_windows
from penstock.windows.window import GLOBAL, decode_window, encode_window

times = st.integers(MIN_WATERMARK, MAX_WATERMARK)


@given(st.lists(st.tuples(times, times).map(lambda pair: TimeWindow(*pair)), min_size=2, max_size=2))
def test_encoded_windows_come_back_and_sort(windows: list[TimeWindow]) -> None:
    left, right = windows
    assert decode_window(b"any key" + encode_window(left)) == left
    assert (encode_window(left) < encode_window(right)) == (left < right)


def test_the_global_window_lasts_to_the_end_of_time() -> None:
    assert GLOBAL.max_timestamp == MAX_WATERMARK
    assert str(GLOBAL) == "[all time]"
    assert str(TimeWindow(0, 5)) == "[0, 5)"
    assert not TimeWindow(0, 5).is_global


@given(
    st.integers(-(10**15), 10**15),
    st.integers(1, 50),
    st.integers(1, 50),
    st.integers(-49, 49),
)
def test_a_record_is_in_all_windows_that_hold_its_time(moment: int, size: int, slide: int, offset: int) -> None:
    offset = offset % slide
    ms = timedelta(milliseconds=1)
    found = sorted(SlidingWindows(size * ms, slide * ms, offset=offset * ms).assign(None, moment, 0))
    first = (moment - size - offset) // slide
    starts = [n * slide + offset for n in range(first - 1, first + size // slide + 4)]
    assert found == [TimeWindow(start, start + size) for start in starts if start <= moment < start + size]


def test_sizes_are_given_in_any_unit() -> None:
    assert TumblingWindows(timedelta(minutes=90)) == TumblingWindows(hours=1, minutes=30) == TumblingWindows(5400)
    assert TumblingWindows(minutes=90, offset=-60).offset_ms == -60_000
    assert hash(TumblingWindows(5)) == hash(TumblingWindows(seconds=5))


@pytest.mark.parametrize(
    "make",
    [
        lambda: TumblingWindows(),
        lambda: TumblingWindows(5, seconds=5),
        lambda: TumblingWindows(0),
        lambda: TumblingWindows(-1),
        lambda: TumblingWindows(10, offset=10),
        lambda: TumblingWindows(10, time="today"),  # type: ignore[arg-type]
        lambda: TumblingWindows(10, stagger="wildly"),  # type: ignore[arg-type]
        lambda: SlidingWindows(10, 0),
        lambda: SlidingWindows(0, 10),
        lambda: SlidingWindows(10, 5, offset=-5),
        lambda: SlidingWindows(10_001, 0.001),
        lambda: SessionWindows(0),
        lambda: SessionWindows(-5),
        lambda: SessionWindows(5, time="never"),  # type: ignore[arg-type]
        lambda: SessionWindows("5"),  # type: ignore[arg-type]
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError):
        make()


def test_sessions_have_a_gap_of_their_own() -> None:
    windows = SessionWindows(lambda record: timedelta(seconds=record) if record < 5 else record / 1000)
    assert windows.assign(2, 10, 0) == [TimeWindow(10, 2010)]
    assert windows.assign(7, 10, 0) == [TimeWindow(10, 17)]
    with pytest.raises(ConfigError, match="a session gap of 0 ms"):
        windows.assign(0, 10, 0)


def test_processing_time_windows_ignore_timestamps() -> None:
    assert TumblingWindows(1, time="processing").assign(None, 99_999, 1500) == [TimeWindow(1000, 2000)]
    assert SessionWindows(1, time="processing").assign(None, None, 1500) == [TimeWindow(1500, 2500)]
    assert not GlobalWindows().event_time


def test_windows_end_with_time() -> None:
    assert SessionWindows(1).assign(None, MAX_WATERMARK - 5, 0) == [TimeWindow(MAX_WATERMARK - 5, MAX_WATERMARK)]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), max_size=20))
def test_windows_merge_alike_one_by_one_and_together(starts: list[tuple[int, int]]) -> None:
    windows = [TimeWindow(start, start + size) for start, size in starts]
    in_flight = InFlight()
    for window in windows:
        merge = in_flight.add(window)
        assert window.start >= merge.window.start
        assert window.end <= merge.window.end
    covers = {cover for cover, _ in merge_windows(list(dict.fromkeys(windows)))}
    assert covers <= set(in_flight.windows)
    alone = set(in_flight.windows) - covers
    assert alone <= set(windows)
    assert InFlight(in_flight.stored()).windows == in_flight.windows
    assert len(set(in_flight.windows.values())) == len(in_flight.windows), "two windows share their contents"
