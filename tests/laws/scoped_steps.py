"""Steps with state that is not kept by key, and programs of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock import CollectionSource, DataStream, MapState, StreamEnvironment, Watermarks
from penstock.config import NO_RESTART
from penstock.ids import Milliseconds, StepId
from penstock.plan.definition import Definition, StateDeclaration, Takes
from penstock.records import Batch, Records
from penstock.runtime.frames import Keyed
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services
from penstock.state.descriptors import OperatorListState
from penstock.state.overlay.broadcast import BroadcastView
from penstock.state.overlay.writes import StateLabel

Rule = tuple[str, int | None, int]
"""A name, what it is worth (None: the rule goes), and a time."""

Purchase = tuple[int, str, int]
"""A key, the name of a rule, and a time."""

Learn = Callable[[Any, Rule, int], None]
"""Takes a rule into the map of rules; given the partition too."""


def learn(rules: Any, rule: Rule, partition: int) -> None:
    name, worth, _ = rule
    if worth is None:
        rules.remove(name)
    else:
        rules.put(name, (rules.get(name, (0, 0))[0] + 1, worth))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pricing(Definition):
    """Says what each purchase is worth by the rules that there are, and how many."""

    rules: MapState[str, Any]
    learn: Learn = learn
    spoil: bool = False
    """The side that may only read writes."""
    sees_order: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return "pricing"

    def takes(self, given: int) -> tuple[Takes, ...]:
        return Takes(keyed=True), Takes(broadcast=True)

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return (StateDeclaration(step=step, name="rules", state=self.rules, kind=self.rules.kind, scope="broadcast"),)

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return PricingOperator(step, services, inputs, self)


class PricingOperator(Operator):
    def __init__(self, step: StepId, services: Services, inputs: int, definition: Pricing) -> None:
        super().__init__(step, services, inputs)
        self._definition = definition
        self._rules = services.broadcast_state(step, {"rules": definition.rules}, self.watermark, None)["rules"]
        self._read = BroadcastView(self._rules, StateLabel(step=step, state="rules"))

    def on_input(self, port: int, batch: Any) -> None:
        self.records_in += len(batch)
        if port == 1:
            for rule in batch.values():
                self._definition.learn(self._rules, rule, self.services.partition)
            return
        assert isinstance(batch, Keyed)
        if self._definition.spoil:
            self._read.put("x", (1, 1))
        rows = [
            {"key": key, "time": time, "rule": copy.copy(self._read.get(name)), "rules": sorted(self._read)}
            for key, name, time in batch.batch.values()
        ]
        self.outputs.emit(Records(rows, batch.batch.timestamps, batch.batch.ticks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hoarding(Definition):
    """Keeps what comes, in a list of each partition; all of it, or the last of each remainder by `every`."""

    kept: OperatorListState[Any]
    every: int | None = None
    sees_order: ClassVar[bool] = True

    @property
    def kind(self) -> str:
        return "hoarding"

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        return (StateDeclaration(step=step, name="kept", state=self.kept, kind=self.kept.kind, scope="operator"),)

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        return HoardingOperator(step, services, self)


class HoardingOperator(Operator):
    def __init__(self, step: StepId, services: Services, definition: Hoarding) -> None:
        super().__init__(step, services)
        self._every = definition.every
        self._kept = services.operator_list(step, "kept", definition.kept, None)

    def on_batch(self, batch: Batch) -> None:  # type: ignore[override]
        self.records_in += len(batch)
        if self._every is None:
            self._kept.extend(batch.values())
            return
        for value in batch.values():
            others = [other for other in self._kept if other[0] % self._every != value[0] % self._every]
            self._kept.update([*others, value])

    def on_end(self) -> None:
        rows = [{"partition": self.services.partition, "value": list(value)} for value in self._kept]
        self.outputs.emit(Records(rows, None, np.full(len(rows), self.watermark, dtype=np.int64)))


BY_TIME: Watermarks[Any] = Watermarks.monotonous(timestamp=lambda record: record[-1])


def environment(parallelism: int, **settings: Any) -> StreamEnvironment:
    return StreamEnvironment("scoped", executor="inline", parallelism=parallelism, restart=NO_RESTART, **settings)


def priced(
    env: StreamEnvironment, purchases: list[Purchase], rules: list[Rule], definition: Definition, timed: bool = True
) -> DataStream[Any]:
    watermarks = BY_TIME if timed else None
    first = env.from_source(CollectionSource(purchases), watermarks=watermarks, name="purchases").key_by(_key)
    second = env.from_source(CollectionSource(rules), watermarks=watermarks, name="rules").broadcast()
    return DataStream(env, env._add(definition, first._input(), second._input(), name="pricing", label="pricing"))


def hoarded(env: StreamEnvironment, sources: list[list[Any]], definition: Definition) -> DataStream[Any]:
    first, *others = [
        env.from_source(CollectionSource(values), watermarks=BY_TIME, name=f"in-{number}")
        for number, values in enumerate(sources)
    ]
    together = (first.union(*others) if others else first).rebalance()
    return DataStream(env, env._add(definition, together._input(), name="hoard", label="hoard"))


def times(count: int, start: Milliseconds = 1000) -> range:
    return range(start, start + count * 10, 10)


def _key(purchase: Purchase) -> int:
    return purchase[0]
