"""The automaton of random patterns, on random events, against the definition."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, note
from hypothesis import strategies as st

from penstock.cep.atoms import Event as TimedEvent
from penstock.cep.compiling import compile_pattern
from penstock.cep.matching import Found, Matcher, Matches, chain
from penstock.cep.pattern import Pattern
from penstock.cep.skipping import SkipStrategy
from penstock.ids import MAX_WATERMARK
from tests.cep.definition import Chosen, Definition, after_skipping
from tests.cep.definition import Event as NamedEvent
from tests.cep.patterns import events, patterns


def found_in(pattern: Pattern, given_events: list[NamedEvent]) -> list[Found]:
    """What the matcher finds, with all time passed at the end."""
    matcher, matches = Matcher(compile_pattern(pattern)), Matches()
    found = []
    for number, event in enumerate(given_events):
        found += matcher.expire(matches, event[1])
        found += matcher.take(matches, TimedEvent(event[1], number, event))
    return [*found, *matcher.expire(matches, MAX_WATERMARK)]


def chosen(one: Found) -> Chosen:
    return tuple((link.stage, link.event.id) for link in chain(one.last))


@given(patterns(), events())
def test_matches_are_those_of_the_definition(pattern: Pattern, given_events: list[NamedEvent]) -> None:
    note(compile_pattern(pattern).describe())
    expected = Counter(Definition(pattern, given_events).matches())
    assert Counter(chosen(one) for one in found_in(pattern, given_events) if not one.timed_out) == expected


@given(patterns(negative_end=False), events(), st.integers(3, 12), st.sampled_from(["to_next", "past_last_event"]))
def test_what_a_strategy_leaves_is_what_the_definition_leaves(
    pattern: Pattern, given_events: list[NamedEvent], within: int, kind: str
) -> None:
    skipping = pattern.within(within / 1000).skipping(getattr(SkipStrategy, kind)())
    found = [chosen(one) for one in found_in(skipping, given_events) if not one.timed_out]
    expected = after_skipping(skipping, given_events, Definition(skipping, given_events).matches())
    assert [(match[0][1], match[-1][1]) for match in found] == expected
