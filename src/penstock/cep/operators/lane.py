"""One pattern in an operator: its automaton, its matcher, and what can be said of whole columns of events.

Laws:
- Of a key without partial matches an event that cannot begin one is not looked at.
- Where every state ignores an event that fulfils no condition, such events are not looked at at all (`skippable`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.cep.atoms import MOST_BITS, Bits
from penstock.cep.automaton import Action, Automaton, StateKind
from penstock.cep.matching import Matcher
from penstock.cep.operators.rows import Due, Ints, Part

Mask = npt.NDArray[np.bool_]


class Lane:
    """`id`: of the rule; empty for the pattern of the program. `valid_from`: partial matches of older versions are dropped."""

    def __init__(
        self, id: str, automaton: Automaton, *, version: int = 0, valid_from: int = 0, limit: int = 0, drops: bool = False
    ) -> None:
        self.id = id
        self.version = version
        self.valid_from = valid_from
        self.automaton = automaton
        self.matcher = Matcher(automaton, limit=limit, drops=drops)
        self.atoms = self.matcher.atoms
        self.skippable = is_skippable(automaton)
        needed = self.matcher.needs(automaton.start)
        self._any_begins = self.matcher.begins_always or bool(needed >> MOST_BITS)
        self._begins = needed & ((1 << MOST_BITS) - 1)

    def masks(self, due: Due) -> tuple[Bits, Bits]:
        """Which conditions are known of each row, and which of them hold."""
        found = [self.atoms.of_batch(part.batch) for part in due.parts]
        known, bits = zip(*found, strict=True)
        return np.concatenate(known), np.concatenate(bits)

    def may_begin(self, known: Bits, bits: Bits) -> Mask:
        """The rows that might begin a match."""
        if self._any_begins:
            return np.ones(len(bits), dtype=np.bool_)
        begins: Mask = ((bits | ~known) & self._begins) != 0
        return begins

    def matters(self, known: Bits, bits: Bits) -> Mask | None:
        """The rows that might change anything; None: all."""
        if not self.skippable:
            return None
        conditions = (1 << min(len(self.atoms.conditions), MOST_BITS)) - 1
        if len(self.atoms.conditions) > MOST_BITS:
            return None
        matters: Mask = ((bits | ~known) & conditions) != 0
        return matters

    def worth_keeping(self, part: Part) -> Ints | None:
        """The rows of a part that have to wait for their time; None: all."""
        if not self.skippable:
            return None
        known, bits = self.atoms.of_batch(part.batch)
        matters = self.matters(known, bits)
        return None if matters is None or matters.all() else np.flatnonzero(matters)


def is_skippable(automaton: Automaton) -> bool:
    """Does an event that fulfils no condition change nothing, whatever state a match is in?"""
    for state in automaton.states:
        if state.kind in (StateKind.FINAL, StateKind.STOP):
            continue
        holding = [edge for edge in state.edges if edge.test.holds(lambda number: False)]
        stays = [edge for edge in holding if edge.action is Action.IGNORE and automaton.states[edge.target] is state]
        if state.kind is StateKind.START:
            if any(edge.action is not Action.IGNORE for edge in holding):
                return False
        elif len(holding) != 1 or not stays:
            return False
    return True
