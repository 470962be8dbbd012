"""A setting of a wrong type is refused by name, when it is made."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock import RestartPolicy, StreamEnvironment
from penstock.config import JobConfig
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "value", "kind", "expected"),
    [
        ("parallelism", "3", "str", "a whole number"),
        ("parallelism", True, "bool", "a whole number"),
        ("max_parallelism", 12.0, "float", "a whole number or None"),
        ("keep", 2.5, "float", "a whole number"),
        ("storage", 5, "int", "a text or None"),
        ("restart", 3, "int", "a RestartPolicy"),
        ("lease", "soon", "str", "a timedelta or a number of seconds"),
        ("hang_after", "late", "str", "a timedelta, a number of seconds or None"),
        ("until_idle", "yes", "str", "True or False"),
        ("spark_config", [], "list", "a dict"),
    ],
)
def test_a_wrong_type(setting: str, value: Any, kind: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        StreamEnvironment("x", **{setting: value})
    assert caught.value.what == f"{setting} is {value!r}, of type {kind}"
    assert caught.value.hint == f"give {expected}: {setting}=..."


def test_a_wrong_type_given_to_execute() -> None:
    env = StreamEnvironment("x", executor="inline")
    env.from_collection([1]).print()
    with pytest.raises(ConfigError, match="keep is '3', of type str"):
        env.execute(keep="3")


def test_a_wrong_type_in_a_restart_policy() -> None:
    with pytest.raises(ConfigError, match="attempts is 'often', of type str"):
        RestartPolicy(attempts="often")  # type: ignore[arg-type]


def test_what_will_do(tmp_path: Path) -> None:
    number: Any = np.int64(2)
    folder: Any = tmp_path
    config = JobConfig(name="x", storage=folder, parallelism=number, lease=timedelta(seconds=1), target_epoch=0.5)
    assert config.storage == str(tmp_path)
    assert config.parallelism == 2
