"""Scripts on the operator of a step, in a harness: keyed process, co-process, broadcast."""

from __future__ import annotations

from typing import Any

from penstock.errors import PenstockError
from penstock.testing import BroadcastHarness, CoHarness, KeyedHarness, OperatorHarness
from tests.cases.co_functions import BROADCAST, CO, KEYED_BROADCAST, Watched
from tests.cases.expectations import ExpectationError, NotBuiltError, compare, compare_number, compare_panes, plain
from tests.cases.script_functions import KEYED, key_selector

IGNORED = {"end_of_bundle", "inspect"}


class HarnessRun:
    """A script on a harness. `ports`: of each input of the script; `watched`: what the function notes for the script."""

    def __init__(
        self, harness: OperatorHarness, *, beam: bool = False, ports: tuple[int, ...] = (0, 1), watched: Watched | None = None
    ) -> None:
        self._harness = harness
        self._beam = beam
        self._ports = ports
        self._watched = watched
        self.restorable = not beam

    def close(self) -> None:
        self._harness.close()

    def restore(self) -> None:
        self._harness.restore(self._harness.snapshot())

    def step(self, step: dict[str, Any]) -> None:
        harness = self._harness
        if "element" in step:
            self._send(step)
        elif "watermark" in step:
            port = self._ports[step["input"]] if "input" in step else None
            harness.watermark(step["watermark"] - self._beam, port=port)
        elif "processing_time" in step:
            harness.processing_time(step["processing_time"])
        elif "snapshot_restore" in step:
            said = step["snapshot_restore"]
            options = {**step, **(said if isinstance(said, dict) else {})}
            harness.restore(harness.snapshot(), parallelism=options.get("parallelism"))
        elif "end_of_input" in step:
            harness.end()
        elif "expect" in step:
            self._expect(step)
        elif "expect_side" in step:
            compare(step["expect_side"], list(harness.side(step["tag"])), step.get("order", "exact"))
        elif "expect_late" in step:
            compare(step["expect_late"], list(harness.side("late")), step.get("order", "exact"))
        elif "expect_state_entries" in step:
            compare_number(step["expect_state_entries"], harness.state_entries(), "state entries")
        elif "expect_event_timers" in step:
            compare_number(step["expect_event_timers"], harness.event_timers(), "event-time timers")
        elif "expect_visited" in step and self._watched is not None:
            visited = {str(key): sorted(values, key=repr) for key, values in self._watched.visited.items()}
            same(visited, {key: sorted(values, key=repr) for key, values in step["expect_visited"].items()})
        elif "expect_seen_broadcast_state" in step and self._watched is not None:
            same(self._watched.seen[-1] if self._watched.seen else None, step["expect_seen_broadcast_state"])
        elif not IGNORED & step.keys():
            raise NotBuiltError(f"no step {sorted(step)} in the runner")

    def _send(self, step: dict[str, Any]) -> None:
        element, raises = step["element"], step.get("raises")
        port, target = self._ports[element.get("input", 0)], step.get("subtask")
        value = element["value"]
        if isinstance(value, dict) and value.keys() == {"any_key_of_subtask"}:
            value, target = self._of_partition(value["any_key_of_subtask"], port), None
        before = 0 if self._watched is None else len(self._watched.caught)
        try:
            self._harness.send(value, element["ts"], port=port, partition=target)
        except PenstockError as error:
            if raises is None and "raises_inside_function" not in step:
                raise ExpectationError(f"raised {error}") from error
        else:
            if raises is not None:
                raise ExpectationError(f"should have raised: {raises}")
        if step.get("raises_inside_function") and (self._watched is None or len(self._watched.caught) == before):
            raise ExpectationError("the function should have seen an error")

    def _of_partition(self, partition: int, port: int) -> str:
        """A value whose key is of that partition."""
        return next(str(n) for n in range(100_000) if self._harness.partition_of(str(n), port) == partition)

    def _expect(self, step: dict[str, Any]) -> None:
        if "subtask" in step:
            taken: list[Any] = [*self._harness.take(partition=step["subtask"])]
            compare(step["expect"], taken, step.get("order", "exact"), ignore_watermarks=True)
            return
        events: list[Any] = list(self._harness.take_events())
        ignore = step.get("watermarks") == "ignore"
        if ignore or self._beam:
            events = [event for event in events if isinstance(event, tuple)]
        if self._beam:
            compare_panes(step["expect"], events)
        else:
            compare(step["expect"], events, step.get("order", "exact"), ignore_watermarks=ignore)


def same(found: Any, expected: Any) -> None:
    if plain(found) != expected:
        raise ExpectationError(f"expected {expected}, got {found}")


def options_of(operator: dict[str, Any]) -> dict[str, Any]:
    named: dict[str, Any] = {name: operator[name] for name in ("parallelism", "max_parallelism") if name in operator}
    return {**named, "max_parallelism": named.get("max_parallelism") or 128}


def function_of(operator: dict[str, Any], functions: dict[str, Any]) -> Any:
    function = operator["function"]
    if function["name"] not in functions:
        raise NotBuiltError(f"no function {function['name']!r} in the runner")
    return functions[function["name"]](function)


def keyed_process(operator: dict[str, Any]) -> HarnessRun:
    function = function_of(operator, KEYED)
    return HarnessRun(KeyedHarness(function, key_selector(operator["key"]), **options_of(operator)))


def keyed_co_process(operator: dict[str, Any]) -> HarnessRun:
    key = operator["key"]
    first, second = (key_selector(one) for one in (key if isinstance(key, list) else [key, key]))
    return HarnessRun(CoHarness(function_of(operator, CO), keys=(first, second), **options_of(operator)))


def broadcast(operator: dict[str, Any]) -> HarnessRun:
    key = operator.get("key")
    function = function_of(operator, BROADCAST if key is None else KEYED_BROADCAST)
    control = operator.get("broadcast_input", 1)
    if isinstance(key, list):
        key = key[1 - control]
    ports = (1, 0) if control == 0 else (0, 1)
    harness = BroadcastHarness(function, None if key is None else key_selector(key), **options_of(operator))
    return HarnessRun(harness, ports=ports, watched=function)
