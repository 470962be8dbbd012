"""Of a large state, what changed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.cli.screen.replay_changes import SHORT, changed_text, unchanged_text


@dataclass(frozen=True)
class Cart:
    owner: str
    items: tuple[int, ...]


def test_short_values_are_shown_whole() -> None:
    assert changed_text([1, 2], [1, 3]) == ("[1, 2]", "[1, 3]")
    assert unchanged_text({"a": 1}) == "{'a': 1}"


def test_a_large_dict() -> None:
    before = {f"item-{n}": n for n in range(1_000)}
    after = {**before, "item-500": -1, "new": 1}
    del after["item-3"]
    assert changed_text(before, after) == (
        "{'item-3': 3, 'item-500': 500, 'new': absent} and 998 the same",
        "{'item-3': absent, 'item-500': -1, 'new': 1} and 998 the same",
    )


def test_many_changes_are_counted() -> None:
    before = {f"item-{n}": n for n in range(100)}
    was, now = changed_text(before, {name: n + 1 for name, n in before.items()})
    assert was.startswith("{'item-0': 0, ")
    assert now.endswith(", and 92 more}")


def test_a_large_list() -> None:
    before = list(range(1_000))
    assert changed_text(before, [*before, 7]) == ("1,000 elements", "the same and [7]")
    middle = [*before[:400], -1, -2, *before[401:]]
    assert changed_text(before, middle) == (
        "400 elements the same, then [400], then 599 elements the same",
        "400 elements the same, then [-1, -2], then 599 elements the same",
    )


def test_fields_and_what_is_within_them() -> None:
    before = Cart("ann", tuple(range(500)))
    was, now = changed_text(before, replace(before, items=(*before.items, 9)))
    assert was == "{'items': 500 elements} and 1 the same"
    assert now == "{'items': the same and [9]} and 1 the same"


def test_what_did_not_change_is_cut_short() -> None:
    text = unchanged_text(list(range(1_000)))
    assert text.startswith("[0, 1, 2, ")
    assert text.endswith("… (unchanged, 1,000 elements)")
    assert len(text) < SHORT + 40


def test_one_long_text() -> None:
    before, after = changed_text("a" * 5_000, "b" * 5_000)
    assert len(before) == len(after) == 601
