"""Rules: patterns as JSON, and a rule set that changes while events pass."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import CollectSink, OutputTag, Pattern, StreamEnvironment, Watermarks, col
from penstock.cep import RejectedRule
from penstock.cep.compiling import compile_pattern
from penstock.cep.rules.change import RuleChange, StoredRule, change_of, decide
from penstock.errors import PlanError
from tests.cep.patterns import patterns
from tests.cep.test_operator import over_columns

Row = dict[str, Any]


def rule(first: str, second: str) -> Any:
    pattern = Pattern.begin("x").where(col("name") == first).followed_by("y").where(col("name") == second)
    return json.loads(pattern.to_json())


A_THEN_B, B_THEN_C = rule("a", "b"), rule("b", "c")
LONGER = json.loads(
    Pattern.begin("x").where(col("name") == "a").next("y").where(col("name") == "b").next("z").where(col("name") == "c").to_json()
)


@given(patterns())
def test_a_pattern_comes_back_from_its_json(pattern: Pattern) -> None:
    written = over_columns(pattern)
    read = Pattern.from_json(written.to_json())
    assert read.to_json() == written.to_json()
    again, before = compile_pattern(read), compile_pattern(written)
    assert [condition.describe() for condition in again.conditions] == [condition.describe() for condition in before.conditions]
    assert (again.states, again.shape, again.within_ms) == (before.states, before.shape, before.within_ms)


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ("{", "this is not JSON"),
        ({"id": 1}, "this is no rule"),
        ({"rule": "r", "pattern": {"version": 2, "stages": []}}, "version 2"),
        ({"rule": "r", "pattern": {"version": 1, "stages": [{"name": "a", "wher": 1}]}}, "unknown field 'wher'"),
        (
            {"rule": "r", "pattern": {"version": 1, "stages": [{"name": "a"}, {"name": "a", "link": "next"}]}},
            "two stages named 'a'",
        ),
        ({"rule": "r", "pattern": {"version": 1, "stages": [{"name": "a", "where": {"call": "exec", "args": []}}]}}, "exec"),
        ({"rule": "r", "version": 0, "pattern": A_THEN_B}, "version 0"),
        ({"rule": "r", "remove": True, "pattern": A_THEN_B}, "remove"),
    ],
)
def test_malformed_rules_are_refused(record: Any, says: str) -> None:
    with pytest.raises(PlanError, match=says):
        change_of(record)


def text(data: Any) -> str:
    found = change_of({"rule": "r", "pattern": data}).pattern
    assert found is not None
    return found


def test_what_becomes_of_a_rule() -> None:
    first = decide(RuleChange("r", None, text(A_THEN_B)), None)
    assert first == StoredRule(1, 1, text(A_THEN_B))
    assert decide(RuleChange("r", None, text(A_THEN_B)), first) is None
    assert decide(RuleChange("r", 5, text(B_THEN_C)), first) == StoredRule(5, 1, text(B_THEN_C))  # partial matches go on
    assert decide(RuleChange("r", 5, text(B_THEN_C), "drop"), first) == StoredRule(5, 5, text(B_THEN_C))
    assert decide(RuleChange("r", 5, text(LONGER)), first) == StoredRule(5, 5, text(LONGER))  # another shape
    removed = decide(RuleChange("r"), first)
    assert removed == StoredRule(2, 2)
    assert decide(RuleChange("r", None, text(A_THEN_B)), removed) == StoredRule(3, 3, text(A_THEN_B))
    with pytest.raises(PlanError, match="has version 2 already"):
        decide(RuleChange("r", 1, text(A_THEN_B)), removed)
    with pytest.raises(PlanError, match="no rule 'r' to remove"):
        decide(RuleChange("r"), None)


REJECTED = OutputTag[RejectedRule]("rejected")


def matches(rows: list[Row], rules: list[Row], **settings: Any) -> tuple[list[Any], list[RejectedRule]]:
    env = StreamEnvironment("rules", executor="inline", **settings)
    times = Watermarks[Row].monotonous(timestamp="at")
    control = env.from_collection(rules, watermarks=times, name="rules").map(lambda one: one["change"])
    events = env.from_collection(rows, watermarks=times, name="events")
    found = (
        events.key_by("key")
        .patterns(control, rejected=REJECTED)
        .select(lambda match: (match.key, match.rule, match.version, match.events["x"][0]["at"], match.events["y"][0]["at"]))
    )
    refused = CollectSink()
    found.side_output(REJECTED).sink_to(refused)
    return sorted(found.execute_and_collect(), key=lambda one: (one[4], one)), list(refused.results())


ROWS = [{"key": key, "name": "abc"[at % 3], "at": at} for at in range(12) for key in ("k1", "k2")]
CHANGES = [
    {"at": 0, "change": {"rule": "one", "pattern": A_THEN_B}},
    {"at": 3, "change": {"rule": "one", "pattern": B_THEN_C}},
    {"at": 4, "change": json.dumps({"rule": "two", "version": 7, "pattern": A_THEN_B})},
    {"at": 5, "change": {"rule": "one"}},
    {"at": 6, "change": {"rule": "one", "remove": True}},
    {"at": 8, "change": {"rule": "two", "version": 7, "remove": True}},
]


def test_a_rule_holds_from_its_time_on() -> None:
    found, refused = matches(ROWS, CHANGES, parallelism=2)
    of_k1 = [one[1:] for one in found if one[0] == "k1"]
    assert of_k1 == [
        ("one", 2, 3, 5),  # began a match of version 1, whose end is c by now
        ("one", 2, 4, 5),
        ("two", 7, 6, 7),
        ("two", 7, 9, 10),
    ]
    assert [one.error for one in refused] == [
        "a pattern is an object",
        "rule 'two' has version 7 already, and version 7 comes",
    ]


@given(st.integers(1, 30), st.integers(1, 3))
def test_matches_of_rules_do_not_depend_on_the_cut(size: int, parallelism: int) -> None:
    whole = matches(ROWS, CHANGES)
    cut = matches(ROWS, CHANGES, max_records_per_epoch=size, first_records_per_epoch=size, parallelism=parallelism)
    assert cut == whole


def test_a_rule_that_names_no_column_of_the_events_matches_nothing() -> None:
    nowhere = json.loads(Pattern.begin("x").where(col("nowhere") == 1).to_json())
    found, refused = matches(ROWS, [{"at": 0, "change": {"rule": "odd", "pattern": nowhere}}, CHANGES[0]])
    assert {one[1] for one in found} == {"one"}
    assert refused == []
