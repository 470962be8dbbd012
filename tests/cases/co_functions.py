"""The functions of two inputs that operator scripts name, as a user would write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock import ListState, OutputTag, ValueState
from penstock.errors import StateError
from penstock.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction, KeyedCoProcessFunction
from penstock.state import BroadcastMapState
from tests.cases.script_functions import Spec, delete, now, queried, register

# --- connected streams -----------------------------------------------------------------------------------------------------


class CoQueryTime(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def process1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield queried(value, ctx, self.spec)

    process2 = process1


class CoAppendKey(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def process1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield f"{value},{ctx.key}"

    process2 = process1


class CoFixedTimers(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def process1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield f"INPUT1:{value}"
        register(ctx, self.spec.get("domain", "event"), self.spec["at_ms"][0])

    def process2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield f"INPUT2:{value}"
        register(ctx, self.spec.get("domain", "event"), self.spec["at_ms"][1])

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield f"{ctx.key}:1777" if self.spec.get("timer_emits") == "key:1777" else "1777"


class CoToggleState(KeyedCoProcessFunction[Any, Any, Any, Any]):
    seen: ValueState[Any] = ValueState()

    def __init__(self, spec: Spec) -> None:
        self.domain = spec.get("domain", "event")

    def process1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield from self._toggle("INPUT1", value, ctx)

    def process2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield from self._toggle("INPUT2", value, ctx)

    def _toggle(self, text: str, value: Any, ctx: Any) -> Iterator[Any]:
        if self.seen.value is None:
            yield f"{text}:{value}"
            self.seen.update(value)
            register(ctx, self.domain, now(ctx, self.domain) + 5)
        else:
            self.seen.clear()
            delete(ctx, self.domain, now(ctx, self.domain) + 4)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield f"STATE:{self.seen.value}"


class CoBothTimers(KeyedCoProcessFunction[Any, Any, Any, Any]):
    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def process1(self, value: Any, ctx: Any) -> None:
        ctx.timers.register_processing_time(3)
        ctx.timers.register_event_time(6)
        ctx.timers.delete_processing_time(3)

    def process2(self, value: Any, ctx: Any) -> None:
        ctx.timers.register_event_time(4)
        ctx.timers.register_processing_time(5)
        ctx.timers.delete_event_time(4)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "EVENT:1777" if ctx.time_domain == "event" else "PROC:1777"


CO: dict[str, Callable[[Spec], Any]] = {
    "query_time": CoQueryTime,
    "append_key": CoAppendKey,
    "co_fixed_timers": CoFixedTimers,
    "co_toggle_state": CoToggleState,
    "co_both_timers": CoBothTimers,
}

# --- a broadcast input -----------------------------------------------------------------------------------------------------


class Watched:
    """What a script asks about besides the output; all copies of a function note it in one place."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.visited: dict[Any, list[Any]] = {}
        self.seen: list[dict[Any, Any]] = []
        """The broadcast state as keyed elements saw it."""
        self.caught: list[str] = []
        """Errors that the function saw."""


def spoken(prefix: str, value: Any, ctx: Any) -> str:
    stamp = "null" if ctx.timestamp is None else ctx.timestamp
    return f"{prefix}:{value} WM:{ctx.current_watermark} TS:{stamp}"


class BrCollectLists(Watched, KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    elements: ListState[Any] = ListState()

    def process(self, value: Any, ctx: Any) -> None:
        self.elements.add(value)

    def process_broadcast(self, value: Any, ctx: Any) -> None:
        ctx.apply_to_keyed_state(self.elements, self._visit)

    def _visit(self, key: Any, elements: ListState[Any]) -> None:
        self.visited[key] = list(elements)


class BrTimer(Watched, KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        if "timer_ms" in self.spec:
            ctx.timers.register_event_time(self.spec["timer_ms"])
        yield spoken("NON-BR", value, ctx)

    def process_broadcast(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield spoken("BR", value, ctx)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield f"TIMER:{timestamp}"


class BrSideOutput(Watched, KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process(self, value: Any, ctx: Any) -> None:
        ctx.output(OutputTag("non-br-out"), spoken("NON-BR", value, ctx))

    def process_broadcast(self, value: Any, ctx: Any) -> None:
        ctx.output(OutputTag("br-out"), spoken("BR", value, ctx))


class BrStateDump(Watched, KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    kept: BroadcastMapState[str, Any] = BroadcastMapState(str)

    def process(self, value: Any, ctx: Any) -> None:
        self.seen.append(dict(self.kept.items()))
        if "timer_ms" in self.spec:
            ctx.timers.register_event_time(self.spec["timer_ms"])

    def process_broadcast(self, value: Any, ctx: Any) -> None:
        self.kept.put(f"{value}.{self.spec['key_postfix']}", value)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield f"TS:{timestamp} " + "".join(f" {key}={value}" for key, value in sorted(self.kept.items()))


class BrRegisterKeys(Watched, KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    kept: BroadcastMapState[str, Any] = BroadcastMapState(str)

    def process(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.seen.append(dict(self.kept.items()))
        for key, kept in self.kept.items():
            yield f"{key}={kept}"

    def process_broadcast(self, value: Any, ctx: Any) -> None:
        for key in self.spec["keys"]:
            self.kept.put(key, value)


class BrKeyedAccess(Watched, KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    own: ValueState[Any] = ValueState()

    def process(self, value: Any, ctx: Any) -> None:
        """Nothing comes of it."""

    def process_broadcast(self, value: Any, ctx: Any) -> None:
        try:
            _ = self.own.value
        except StateError as error:
            self.caught.append(error.what)
            raise


KEYED_BROADCAST: dict[str, Callable[[Spec], Any]] = {
    "br_collect_lists": BrCollectLists,
    "br_timer": BrTimer,
    "br_side_output": BrSideOutput,
    "br_state_dump": BrStateDump,
    "br_register_keys": BrRegisterKeys,
    "br_keyed_access": BrKeyedAccess,
}


class LooseBroadcast(BroadcastProcessFunction[Any, Any, Any]):
    """Does without keys what one of the functions above does that has no need of them."""

    kept: BroadcastMapState[str, Any] = BroadcastMapState(str)

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.seen, self.visited, self.caught = inner.seen, inner.visited, inner.caught

    def process(self, value: Any, ctx: Any) -> Any:
        self.inner.kept = self.kept
        return self.inner.process(value, ctx)

    def process_broadcast(self, value: Any, ctx: Any) -> Any:
        self.inner.kept = self.kept
        return self.inner.process_broadcast(value, ctx)


def loose(make: Callable[[Spec], Any]) -> Callable[[Spec], Any]:
    return lambda spec: LooseBroadcast(make({name: said for name, said in spec.items() if name != "timer_ms"}))


BROADCAST: dict[str, Callable[[Spec], Any]] = {
    name: loose(KEYED_BROADCAST[name]) for name in ("br_timer", "br_side_output", "br_state_dump", "br_register_keys")
}
"""Of operators without a key."""
