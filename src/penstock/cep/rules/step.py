"""The step that runs rules: a keyed stream, and a broadcast stream of rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.cep.rules.change import RuleChange, StoredRule
from penstock.cep.step import KeyedPatterns
from penstock.ids import StepId
from penstock.plan.definition import StateDeclaration, Takes
from penstock.runtime.operators.operator import Operator
from penstock.runtime.services import Services
from penstock.state.descriptors import BroadcastMapState

if TYPE_CHECKING:
    from penstock.cep.operators.lane import Lane

RULES, COMING = "rules", "coming_rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class RulesStep(KeyedPatterns):
    """`rejected`: the side output of rules that are refused."""

    rejected: str | None = None

    @property
    def kind(self) -> str:
        return "pattern rules"

    def takes(self, given: int) -> tuple[Takes, ...]:
        return Takes(keyed=True, key_type=self.key_type), Takes(broadcast=True)

    def rule_states(self) -> dict[str, BroadcastMapState[str, Any]]:
        """The rule set, and changes that come to hold later."""
        return {RULES: BroadcastMapState(str, StoredRule), COMING: BroadcastMapState(str, RuleChange)}

    def states(self, step: StepId) -> tuple[StateDeclaration, ...]:
        rules = (
            StateDeclaration(step=step, name=name, state=state, kind=state.kind, scope="broadcast")
            for name, state in self.rule_states().items()
        )
        return *self.keyed_declarations(step), *rules

    def kept(self) -> str:
        return f"partial matches of rules, in {self.time} time"

    def lanes(self) -> Iterator[Lane]:
        yield from ()

    def build(self, step: StepId, services: Services, inputs: int) -> Operator:
        from penstock.cep.rules.operator import RulesOperator

        return RulesOperator(step, services, self, inputs)

    def describe(self) -> dict[str, str]:
        """For explain."""
        return {"pattern": "rules, from the broadcast stream", "time": f"{self.time} time", "in bulk": "all conditions of rules"}
