"""How many examples a property test is checked with, and that none is checked with fewer.

- `test`, the default: 300 examples, the same in every run, so that a failure in CI is a failure here.
- `laws` (`make laws`): 2,000 examples, others in every run; what failed is kept in `.hypothesis/` and tried first next time.

A property sets no `max_examples` of its own. One that is parametrised over many types, each with examples of its own kind, may
share them between its cases with `shared_between`: together they are as many as the profile says.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

_ANY_MACHINE = settings(
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)


def register_profiles() -> None:
    settings.register_profile("test", _ANY_MACHINE, max_examples=300, derandomize=True)
    kept = DirectoryBasedExampleDatabase(".hypothesis/examples")
    settings.register_profile("laws", _ANY_MACHINE, max_examples=2_000, derandomize=False, database=kept)


def shared_between(cases: int) -> settings:
    """For a property with so many cases, each of a different type."""
    return settings(max_examples=math.ceil(settings().max_examples / cases))


def is_property(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and bool(getattr(item.obj, "is_hypothesis_test", False))


def too_few_examples(item: pytest.Function) -> str | None:
    """Why this property is checked with fewer examples than the profile says; None if it is not.

    The cases that it is parametrised with count together, also those that this run leaves out.
    """
    wanted = settings().max_examples
    chosen: settings = item.obj._hypothesis_internal_use_settings
    cases = math.prod(len(list(mark.args[1])) for mark in item.iter_markers("parametrize"))
    if chosen.max_examples * cases >= wanted:
        return None
    return f"{item.nodeid}: {chosen.max_examples} examples" + (f" for each of {cases} cases" if cases > 1 else "")
