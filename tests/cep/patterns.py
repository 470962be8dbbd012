"""Random patterns over events with one-letter names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from penstock.cep.checking import PatternError
from penstock.cep.pattern import Pattern
from penstock.cep.stages import Group

LETTERS = "abcd"


@dataclass(frozen=True)
class Named:
    """Accepts events with one of these names."""

    letters: str

    def __call__(self, event: Any) -> bool:
        return (event["name"] if isinstance(event, dict) else event[0]) in self.letters


def letters(without: str = "") -> st.SearchStrategy[str]:
    rest = [letter for letter in LETTERS if letter not in without]
    return st.lists(st.sampled_from(rest), min_size=1, max_size=2, unique=True).map(lambda some: "".join(sorted(some)))


@st.composite
def patterns(draw: st.DrawFn, *, negative_end: bool = True, times: bool = True) -> Pattern:
    """Legal patterns of up to four stages."""
    count = draw(st.integers(1, 4))
    pattern = _quantified(draw, Pattern.begin("s0").where(Named(draw(letters()))), 0, times)
    within = draw(st.none() | st.integers(2, 12))
    number = 1
    while number < count:
        name = f"s{number}"
        before = pattern.stages[-1]
        forbids = not (
            before.optional or before.greedy or before.link.negative or (isinstance(before, Group) and before.repeated)
        )
        if draw(st.integers(0, 4)) == 0 and forbids:
            last = number == count - 1
            link = draw(st.sampled_from(["not_next", "not_followed_by"]))
            if last and not negative_end:
                break
            if last and link == "not_followed_by" and within is None:
                within = draw(st.integers(2, 12))
            forbidden = draw(letters())
            pattern = getattr(pattern, link)(name).where(Named(forbidden))
            number += 1
            if not last:
                pattern = _positive(draw, pattern, number, forbidden, times)
                number += 1
            continue
        pattern = _positive(draw, pattern, number, "", times)
        number += 1
    pattern = pattern if within is None else pattern.within(within / 1000)
    try:
        return pattern.check()
    except PatternError:
        reject()


def _positive(draw: st.DrawFn, pattern: Pattern, number: int, without: str, times: bool) -> Pattern:
    link = draw(st.sampled_from(["next", "followed_by", "followed_by_any"]))
    if not without and draw(st.integers(0, 5)) == 0:
        inside = Pattern.begin(f"s{number}x").where(Named(draw(letters())))
        inside = getattr(inside, draw(st.sampled_from(["next", "followed_by", "followed_by_any"])))(f"s{number}y")
        group = getattr(pattern, link)(inside.where(Named(draw(letters()))))
        return _quantified(draw, group, number, times, group=True)
    made = getattr(pattern, link)(f"s{number}").where(Named(draw(letters(without))))
    single = not made.stages[-1].repeated
    if times and single and draw(st.integers(0, 5)) == 0:
        return made.within(draw(st.integers(1, 3)) / 1000, "previous_and_current")  # type: ignore[no-any-return]
    return _quantified(draw, made, number, times, after_forbidden=bool(without))


def _quantified(
    draw: st.DrawFn, pattern: Pattern, number: int, times: bool, *, group: bool = False, after_forbidden: bool = False
) -> Pattern:
    kind = draw(st.sampled_from(["one", "one", "one_or_more", "times", "range", "or_more"]))
    within = draw(st.none() | st.integers(1, 3)) if times and not group and kind != "one" else None
    options: dict[str, Any] = {} if within is None else {"within": within / 1000}
    if kind == "one_or_more":
        pattern = pattern.one_or_more(**options)
    elif kind == "times":
        pattern = pattern.times(draw(st.integers(1, 3)), **options)
    elif kind == "range":
        least = draw(st.integers(1, 2))
        pattern = pattern.times(least, least + draw(st.integers(0, 2)), **options)
    elif kind == "or_more":
        pattern = pattern.times_or_more(draw(st.integers(1, 3)), **options)
    if kind != "one":
        inner = draw(st.sampled_from(["", "consecutive", "allow_combinations"]))
        if inner:
            pattern = getattr(pattern, inner)()
        elif not group and not after_forbidden and draw(st.integers(0, 3)) == 0:
            pattern = pattern.greedy()
        looping = pattern.stages[-1].maximum is None
        if looping and not group and not pattern.stages[-1].greedy and draw(st.integers(0, 3)) == 0:
            pattern = pattern.until(Named(draw(letters())))
    after_greedy = len(pattern.stages) > 1 and pattern.stages[-2].greedy
    if draw(st.integers(0, 3)) == 0 and not after_greedy:
        pattern = pattern.optional()
    return pattern


@st.composite
def events(draw: st.DrawFn, most: int = 9) -> list[tuple[str, int]]:
    """Events in order of time; some at the same time."""
    found, time = [], 0
    for letter in draw(st.lists(st.sampled_from(LETTERS), max_size=most)):
        time += draw(st.integers(0, 3))
        found.append((letter, time))
    return found
