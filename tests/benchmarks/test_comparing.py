"""What `benchmarks/compare.py` makes of its measurements, and whose code it measures."""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.commits import CommitError, commit_of
from harness.comparing import compare, in_turns
from harness.contenders import ContenderError, run_contender

STEADY = [100.0, 101, 99, 100, 100]


def test_a_difference_within_the_spread_is_none() -> None:
    found = compare([100, 120, 90, 100, 95], [92, 93, 91, 92, 92], "more")
    assert found.spread == pytest.approx(0.15)
    assert found.verdict == "same within the spread"
    assert not found.too_much_worse


def test_the_wider_side_counts() -> None:
    assert compare(STEADY, [80, 110, 50, 81, 79], "more").verdict == "same within the spread"


@pytest.mark.parametrize(
    ("factor", "better", "verdict", "fails"),
    [
        (0.9, "more", "10.0% worse", True),
        (1.1, "less", "10.0% worse", True),
        (1.1, "more", "10.0% better", False),
        (0.9, "less", "10.0% better", False),
        (0.96, "more", "4.0% worse", False),
        (1.04, "less", "4.0% worse", False),
        (1.0, "less", "same within the spread", False),
    ],
)
def test_more_or_less(factor: float, better: str, verdict: str, fails: bool) -> None:
    found = compare(STEADY, [value * factor for value in STEADY], "more" if better == "more" else "less")
    assert found.ratio == pytest.approx(factor)
    assert (found.verdict, found.too_much_worse) == (verdict, fails)


def test_pairs_alternate() -> None:
    assert in_turns(3) == [("before", "after"), ("after", "before"), ("before", "after")]


def test_a_commit_that_does_not_exist() -> None:
    with pytest.raises(CommitError, match="there is no commit 'no-such-commit'"):
        commit_of("no-such-commit")


def contender(folder: Path) -> Path:
    """A folder with a contender of its own, to be found beside Penstock."""
    source, run = folder / "src", folder / "run"
    source.mkdir()
    run.mkdir()
    (source / "trial.py").write_text("import penstock\n\ndef main(parameters):\n    return {'from': penstock.__file__}\n")
    return source


def test_penstock_is_imported_from_where_it_should_be(tmp_path: Path) -> None:
    source = contender(tmp_path)
    (source / "penstock").mkdir()
    (source / "penstock" / "__init__.py").touch()
    result = run_contender("trial", {}, tmp_path / "run", label="trial", source=source)
    assert result["from"] == str(source / "penstock" / "__init__.py")


def test_penstock_from_elsewhere_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(ContenderError, match=r"driver: Penstock is from .*, not from "):
        run_contender("trial", {}, tmp_path / "run", label="trial", source=contender(tmp_path))
