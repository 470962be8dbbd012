"""The check that every property is checked with enough examples: it lets good ones through, and only those."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parents[1]

ENOUGH = """
import pytest
from hypothesis import given, settings, strategies as st
from tests.properties import shared_between

@given(st.integers())
def test_by_the_profile(n: int) -> None:
    assert n == n

@pytest.mark.parametrize("case", range(40))
@shared_between(40)
@given(st.integers())
def test_shared(case: int, n: int) -> None:
    assert n == n

def test_plain() -> None:
    pass
"""

FEW = """
@settings(max_examples=299)
@given(st.integers())
def test_few(n: int) -> None:
    assert n == n

@pytest.mark.parametrize("case", range(4))
@settings(max_examples=74)
@given(st.integers())
def test_few_cases(case: int, n: int) -> None:
    assert n == n
"""


def collected(folder: Path, tests: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_sample.py").write_text(tests)
    conftest = folder / "conftest.py"
    conftest.write_text("from tests.conftest import pytest_collection_modifyitems\n")
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [*command, "-c", str(ROOT / "pyproject.toml"), *arguments, str(folder)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_a_property_with_fewer_examples_is_refused(tmp_path: Path) -> None:
    done = collected(tmp_path, ENOUGH + FEW)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    refused = [line.rpartition("::")[2] for line in done.stderr.splitlines() if "::" in line]
    assert refused == ["test_few: 299 examples", *(f"test_few_cases[{n}]: 74 examples for each of 4 cases" for n in range(4))]


def test_the_others_are_marked(tmp_path: Path) -> None:
    done = collected(tmp_path, ENOUGH, "-m", "property")
    assert done.returncode == 0, done.stderr
    assert "41/42 tests collected" in done.stdout


def test_profiles() -> None:
    test, laws = settings.get_profile("test"), settings.get_profile("laws")
    assert (test.max_examples, test.derandomize, test.print_blob) == (300, True, True)
    assert (laws.max_examples, laws.derandomize, laws.print_blob) == (2000, False, True)
    assert laws.database is not None
