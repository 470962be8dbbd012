"""Runs rules: a lane for each, which come and go with the records of the broadcast stream.

Laws:
- A rule of event time t holds for events whose time is beyond t: it waits until time has got there, and what is due by then
  happens first. One without a time, or that comes later, holds at once.
- All partitions apply the same changes in the same order; what is refused is reported by one of them.
- A row for which a rule cannot be computed does not match it: that is counted, and the job goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.cep.compiling import compile_pattern
from penstock.cep.operators.lane import Lane
from penstock.cep.operators.operator import PatternOperator
from penstock.cep.operators.rows import Due, Ints
from penstock.cep.rules.change import RuleChange, StoredRule, change_of, decide, rejected
from penstock.cep.rules.json_form import pattern_from_data
from penstock.cep.rules.step import COMING, RULES, RulesStep
from penstock.errors import PenstockError, PlanError
from penstock.ids import MAX_WATERMARK, Milliseconds, StepId
from penstock.records import NO_TIMESTAMP, Records
from penstock.runtime.frames import unkeyed
from penstock.runtime.operators.evaluator import RowsFailedError
from penstock.runtime.operators.operator import Operator, Ports
from penstock.runtime.services import Services
from penstock.state.overlay.visiting import keys_with

if TYPE_CHECKING:
    from penstock.state.overlay.broadcast import BroadcastHandle


_OFFSET = 1 << 62
"""Makes times sort as text."""


class RulesOperator(PatternOperator):
    definition: RulesStep

    def __init__(self, step: StepId, services: Services, definition: RulesStep, inputs: int) -> None:
        super().__init__(step, services, definition, inputs)
        rules = services.broadcast_state(step, definition.rule_states(), self.watermark, definition.function())
        self._rules: BroadcastHandle = rules[RULES]
        self._coming: BroadcastHandle = rules[COMING]
        self._next_coming: Milliseconds = _time_of(next(iter(self._coming), None))
        for id, rule in self._rules.items():
            self._lane(id, rule)

    def on_input(self, port: int, batch: Any) -> None:
        if port == 0:
            self.on_batch(batch)
        else:
            self._take_rules(unkeyed(batch))

    def on_merged(self, batches: dict[int, Any], ports: Ports) -> None:
        Operator.on_merged(self, batches, ports)

    # --- rules -------------------------------------------------------------------------------------------------------------

    def _take_rules(self, batch: Any) -> None:
        self.records_in += len(batch)
        ticks = [self.watermark] * len(batch) if batch.ticks is None else batch.ticks.tolist()
        times = [NO_TIMESTAMP] * len(batch) if batch.timestamps is None else batch.timestamps.tolist()
        for record, tick, time in zip(batch.values(), ticks, times, strict=True):
            if self.event_time and tick > self.watermark:
                self.advance(tick)
            try:
                change = change_of(record)
                if self.event_time and time > self.watermark:
                    number = sum(_time_of(key) == time for key in self._coming)
                    self._coming.put(f"{time + _OFFSET:020}:{number}", change)
                    self._next_coming = min(self._next_coming, time)
                else:
                    self._apply(change)
            except PlanError as error:
                self._reject(record, error, time)

    def _go_to(self, until: Milliseconds) -> None:
        """Rules come to hold between events."""
        while self._next_coming <= until:
            key, change = next(iter(self._coming.items()))
            time = _time_of(key)
            super()._go_to(time)
            self._coming.remove(key)
            try:
                self._apply(change)
            except PlanError as error:
                self._reject(msgspec.to_builtins(change), error, time)
            self._next_coming = _time_of(next(iter(self._coming), None))
        super()._go_to(until)

    def _apply(self, change: RuleChange) -> None:
        now: StoredRule | None = self._rules.get(change.rule)
        then = decide(change, now)
        if then is None:
            return
        self._rules.put(change.rule, then)
        self._lane(change.rule, then)
        if now is not None and now.pattern is not None and then.valid_from > now.valid_from:
            self._drop(change.rule)

    def _lane(self, id: str, rule: StoredRule) -> None:
        if rule.pattern is None:
            self.lanes.pop(id, None)
            return
        cached: dict[tuple[str, int], Any] = self.body.automata
        automaton = cached.get((id, rule.version))
        if automaton is None:
            automaton = cached[id, rule.version] = compile_pattern(pattern_from_data(msgspec.json.decode(rule.pattern)))
        before = self.lanes.get(id)
        definition = self.definition
        self.lanes[id] = lane = Lane(
            id,
            automaton,
            version=rule.version,
            valid_from=rule.valid_from,
            limit=definition.max_partial_matches,
            drops=definition.when_full == "drop_oldest",
        )
        if before is not None and before.version >= rule.valid_from:
            self._renumber(before, lane)

    def _renumber(self, before: Lane, now: Lane) -> None:
        """Partial matches in memory go on in the states of the same names."""
        numbers = {state.name: number for number, state in enumerate(now.automaton.states)}
        for key in self.keys.values():
            matches = key.matches.get(before.id)
            if matches is not None:
                for ones in (matches.partial, matches.complete):
                    ones[:] = [one._replace(state=numbers[before.automaton.states[one.state].name]) for one in ones]

    def _drop(self, id: str) -> None:
        """No key keeps partial matches of an older version."""
        handle, number = self.store.matches, self.services.state_id(self.step, "matches")
        for encoded in [slot.encoded for slot in keys_with(self.keyed, handle, number, self.services.groups)]:
            if encoded not in self.keys:
                self._load(encoded)
        for key in list(self.keys.values()):
            key.matches.pop(id, None)
            self._set_alarm(key)

    def _reject(self, record: Any, error: PenstockError, time: Milliseconds) -> None:
        if self.services.partition != 0:
            return
        self.counters.count("rules_rejected")
        if self.definition.rejected is not None:
            times = None if time == NO_TIMESTAMP else np.asarray([time], dtype=np.int64)
            ticks = np.asarray([self.watermark], dtype=np.int64)
            self.outputs.emit_side(self.definition.rejected, Records([rejected(record, error)], times, ticks))

    # --- rows --------------------------------------------------------------------------------------------------------------

    def _masks(self, lane: Lane, due: Due) -> tuple[Ints, Ints]:
        try:
            return lane.masks(due)
        except (RowsFailedError, PlanError):
            return self._row_by_row(lane, due)

    def _row_by_row(self, lane: Lane, due: Due) -> tuple[Ints, Ints]:
        known = np.full(len(due), (1 << len(lane.atoms.conditions)) - 1, dtype=np.int64)
        bits = np.zeros(len(due), dtype=np.int64)
        failed = 0
        for row, value in enumerate(value for part in due.parts for value in part.batch.values()):
            try:
                known[row : row + 1], bits[row : row + 1] = lane.atoms.of_batch(Records([value]))
            except (RowsFailedError, PlanError):
                failed += 1
        if failed:
            self.counters.count("rule_rows_failed", failed)
        return known, bits


def _time_of(key: str | None) -> Milliseconds:
    """When a change comes to hold, from what it is kept under."""
    return MAX_WATERMARK + 1 if key is None else int(key.split(":")[0]) - _OFFSET
