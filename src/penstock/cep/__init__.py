"""Patterns in streams (complex event processing): what a person writes becomes an automaton, which an operator runs for each key.

`pattern` → `stages` → `compiling` → `automaton`, which is data; `matching` runs it over the events of one key and knows no
streams; `step` is the definition, `operators/` keep what it makes in state, with timers. SQL's MATCH_RECOGNIZE makes the same
stages. What a program uses is named here. Imports `plan/`, `runtime/`, `state/` and `timing/`.
"""

from penstock.cep.checking import PatternError
from penstock.cep.functions import Match, PatternContext, PatternFunction, RuleMatch
from penstock.cep.pattern import Pattern
from penstock.cep.rules.change import RejectedRule
from penstock.cep.skipping import SkipStrategy

__all__ = ["Match", "Pattern", "PatternContext", "PatternError", "PatternFunction", "RejectedRule", "RuleMatch", "SkipStrategy"]
