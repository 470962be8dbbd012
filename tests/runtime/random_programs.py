"""Keyed programs as data: each record says what its function does to state and timers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from penstock import (
    AggregateFunction,
    AggregatingState,
    KeyedProcessFunction,
    ListState,
    MapState,
    ReducingState,
    Ttl,
    ValueState,
)
from penstock.testing import End, ProcessingTime, Record, Watermark


class Mean(AggregateFunction[int, list[int], float]):
    """With an accumulator that is changed in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def result(self, accumulator: list[int]) -> float:
        return accumulator[0] / accumulator[1]


def event(ms: int, refresh: Any = "write") -> Ttl:
    return Ttl(timedelta(milliseconds=ms), time="event", refresh=refresh)


def processing(ms: int, refresh: Any = "write") -> Ttl:
    return Ttl(timedelta(milliseconds=ms), time="processing", refresh=refresh)


class Interpreter(KeyedProcessFunction[str, Any, Any]):
    """Runs the operations that come with a record, and emits what they read."""

    value: ValueState[int] = ValueState(int)
    number = ValueState(int, default=7)
    bag: ValueState[list[int]] = ValueState(list[int], default=[])
    untyped: ValueState[Any] = ValueState()
    items: ListState[int] = ListState(int)
    boxes: ListState[list[int]] = ListState(list[int])
    table: MapState[str, int] = MapState(str, int)
    shelves: MapState[int, list[int]] = MapState(int, list[int])
    total = ReducingState(int, lambda left, right: left + right)
    mean = AggregatingState(Mean(), list[int])
    fading: ValueState[int] = ValueState(int, ttl=event(10))
    fading_read: ValueState[int] = ValueState(int, ttl=event(10, "read"))
    fading_items: ListState[int] = ListState(int, ttl=event(7))
    fading_table: MapState[str, int] = MapState(str, int, ttl=event(12))
    ageing: ValueState[int] = ValueState(int, ttl=processing(10))
    ageing_table: MapState[str, list[int]] = MapState(str, list[int], ttl=processing(15, "read"))
    ageing_total = ReducingState(int, lambda left, right: left + right, ttl=processing(9))

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        for op in value[1]:
            yield op[0], self.run(op, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer", ctx.time_domain, timestamp, self.dump()
        if timestamp % 3 == 0:
            self.items.add(timestamp % 100)
        if timestamp % 5 == 0:
            self.fading.update(timestamp % 100)
        if timestamp % 4 == 0 and timestamp < 200:
            again = ctx.timers.register_event_time if ctx.time_domain == "event" else ctx.timers.register_processing_time
            again(timestamp + 7)
        if timestamp % 7 == 0:
            self.bag.value.append(timestamp % 100)

    def run(self, op: tuple[Any, ...], ctx: Any) -> Any:
        name, x = op
        match name:
            case "value":
                self.value.update(x)
            case "value-":
                self.value.clear()
            case "number+":
                self.number.update(self.number.value + x)
            case "number-":
                self.number.clear()
            case "bag+":
                self.bag.value.append(x)
            case "bag=":
                self.bag.update([x])
            case "bag-":
                self.bag.clear()
            case "untyped":
                self.untyped.update((x, {"x": [x]}))
            case "untyped+":
                if self.untyped.value is not None:
                    self.untyped.value[1]["x"].append(x)
            case "items+":
                self.items.add(x)
            case "items=":
                self.items.update([x, x + 1])
            case "items-":
                self.items.clear()
            case "boxes+":
                self.boxes.add([x])
            case "boxes*":
                for box in self.boxes:
                    box.append(x)
            case "table":
                self.table[str(x % 4)] = x
            case "table-":
                self.table.remove(str(x % 4))
            case "table--":
                self.table.clear()
            case "shelf":
                if x % 3 not in self.shelves:
                    self.shelves[x % 3] = []
                self.shelves[x % 3].append(x)
            case "total":
                self.total.add(x)
            case "total-":
                self.total.clear()
            case "mean":
                self.mean.add(x)
            case "mean-":
                self.mean.clear()
            case "fading":
                self.fading.update(x)
            case "fading-":
                self.fading.clear()
            case "fading_read":
                self.fading_read.update(x)
            case "fading_read?":
                return self.fading_read.value
            case "fading_items":
                self.fading_items.add(x)
            case "fading_table":
                self.fading_table[str(x % 3)] = x
            case "ageing":
                self.ageing.update(x)
            case "ageing_table":
                self.ageing_table[str(x % 3)] = [x]
            case "ageing_table+":
                found = self.ageing_table.get(str(x % 3))
                if found is not None:
                    found.append(x)
            case "ageing_total":
                self.ageing_total.add(x)
            case "event":
                ctx.timers.register_event_time(max(ctx.current_watermark, 0) + x)
            case "event past":
                ctx.timers.register_event_time(max(ctx.current_watermark, 0) - x)
            case "event-":
                ctx.timers.delete_event_time(max(ctx.current_watermark, 0) + x)
            case "processing":
                ctx.timers.register_processing_time(ctx.current_processing_time + 1 + x)
            case "processing-":
                ctx.timers.delete_processing_time(ctx.current_processing_time + 1 + x)
            case "times":
                return ctx.timestamp, max(ctx.current_watermark, 0), ctx.current_processing_time
            case "dump":
                return self.dump()
        return None

    def dump(self) -> Any:
        """Everything this key has, without reading what lives on by being read."""
        return {
            "value": self.value.value,
            "number": self.number.value,
            "bag": list(self.bag.value),
            "untyped": repr(self.untyped.value),
            "items": list(self.items),
            "boxes": [list(box) for box in self.boxes],
            "table": list(self.table.items()),
            "shelves": [(k, list(v)) for k, v in self.shelves.items()],
            "total": self.total.value,
            "mean": self.mean.value,
            "fading": self.fading.value,
            "fading_items": list(self.fading_items),
            "fading_table": list(self.fading_table.items()),
            "ageing": self.ageing.value,
            "ageing_table": list(self.ageing_table.keys()),
            "ageing_total": self.ageing_total.value,
        }


OPERATIONS = [
    *("value", "value-", "number+", "number-", "bag+", "bag=", "bag-", "untyped", "untyped+", "items+", "items=", "items-"),
    *("boxes+", "boxes*", "table", "table-", "table--", "shelf", "total", "total-", "mean", "mean-", "fading", "fading-"),
    *("fading_read", "fading_read?", "fading_items", "fading_table", "ageing", "ageing_table", "ageing_table+", "ageing_total"),
    *("times", "dump"),
]
TIMERS = ["event", "event past", "event-", "processing", "processing-"]

KEYS = ("a", "b", "c", "d", "k" * 600)

operations = st.lists(st.tuples(st.sampled_from(OPERATIONS + TIMERS * 2), st.integers(0, 12)), min_size=1, max_size=4)


@st.composite
def scripts(draw: Any, max_size: int = 30) -> list[Any]:
    """A script of one partition: records, event time and the clock go on; at its end every key shows its state."""
    items: list[Any] = []
    event_time, now = 0, 1000
    for _ in range(draw(st.integers(1, max_size))):
        kind = draw(st.sampled_from(["record"] * 6 + ["watermark"] * 2 + ["clock"]))
        if kind == "record":
            key = draw(st.sampled_from(KEYS))
            items.append(Record((key, draw(operations)), draw(st.none() | st.integers(event_time - 5, event_time + 10))))
        elif kind == "watermark":
            event_time += draw(st.integers(0, 12))
            items.append(Watermark(event_time))
        else:
            now += draw(st.integers(1, 20))
            items.append(ProcessingTime(now))
    items += [Record((key, [("dump", 0)]), event_time) for key in KEYS]
    return [*items, End()]
