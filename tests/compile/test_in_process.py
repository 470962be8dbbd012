"""Options from outside reach the environments of the program that is run with them, and no others."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import StreamEnvironment
from penstock.compile.in_process import NONE, RunOptions, applied, run_program, within
from penstock.errors import PlanError

SRC = Path(penstock.__file__).parent


def environment(name: str = "outer") -> StreamEnvironment:
    env = StreamEnvironment(name, executor="inline", parallelism=2)
    env.from_collection([1, 2, 3]).print()
    return env


def test_the_environment_takes_them_when_it_is_made() -> None:
    before = environment()
    with applied(RunOptions(settings={"parallelism": 3})):
        inside = environment()
        assert before.config.parallelism == 2
    assert inside.config.parallelism == 3, "and keeps them"
    assert environment().config.parallelism == 2


def test_they_win_over_the_settings_of_execute() -> None:
    seen: list[int] = []
    with applied(RunOptions(settings={"parallelism": 3}, instead=lambda env: seen.append(env.config.parallelism))):
        environment().execute(parallelism=5)
    assert seen == [3]


def test_other_threads_have_none() -> None:
    found: list[int] = []

    def look() -> None:
        found.append(environment().config.parallelism)

    with applied(RunOptions(settings={"parallelism": 3})):
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert found == [2]


def test_two_threads_run_programs_with_options_of_their_own() -> None:
    both = threading.Barrier(2, timeout=60)
    found: dict[int, int] = {}

    def run(parallelism: int) -> None:
        with applied(RunOptions(settings={"parallelism": parallelism})):
            both.wait()
            found[parallelism] = environment().config.parallelism
            both.wait()

    threads = [threading.Thread(target=run, args=(parallelism,)) for parallelism in (3, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {3: 3, 4: 4}


def test_it_may_be_executed_in_another_thread() -> None:
    heard: list[Any] = []
    with applied(RunOptions(settings={"name": "theirs"}, listeners=(heard.append,))):
        env = environment()
    thread = threading.Thread(target=env.execute)
    thread.start()
    thread.join()
    assert [record.records_in for record in heard] == [3]


def test_what_runs_inside_a_job_has_none() -> None:
    """A function that runs a job of its own, on the inline executor in the same thread."""
    names: list[str] = []

    def nested(value: int) -> int:
        names.append(environment("nested").config.name)
        return value

    with applied(RunOptions(settings={"name": "theirs"})):
        env = StreamEnvironment("outer", executor="inline", parallelism=1)
        env.from_collection([1]).map(nested).print()
        assert env.execute().name == "theirs"
        assert environment().config.name == "theirs"
    assert names == ["nested"]


PROGRAM = """
import sys
from penstock import StreamEnvironment
env = StreamEnvironment(sys.argv[1], executor="inline", parallelism=2)
env.from_collection([1, 2]).print()
env.execute()
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "app.py").write_text(PROGRAM)
    return str(tmp_path / "app.py")


def test_programs_within_programs(path: str) -> None:
    """What is done at a program's `execute()` is outside of it; a program that is run there has options of its own."""

    def look(env: StreamEnvironment) -> tuple[Any, ...]:
        assert RunOptions.current() is NONE
        inner = within(lambda other: (other.config.name, other.config.parallelism), path, ["inner"], settings={"parallelism": 4})
        return env.config.name, env.config.parallelism, inner, environment().config.parallelism

    assert within(look, path, ["outer"], settings={"parallelism": 3}) == ("outer", 3, ("inner", 4), 2)
    assert RunOptions.current() is NONE


def test_the_environment_that_was_reached_can_be_run(path: str) -> None:
    env = within(lambda env: env, path, ["later"], settings={"parallelism": 3})
    result = env.execute()
    assert (result.name, result.records_in) == ("later", 2)


def test_they_are_gone_when_a_program_fails(tmp_path: Path, path: str) -> None:
    (tmp_path / "bad.py").write_text("1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        run_program(str(tmp_path / "bad.py"), [], RunOptions(settings={"parallelism": 3}))
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(PlanError, match="ended without executing anything"):
        within(lambda env: env, str(tmp_path / "empty.py"), [])
    assert RunOptions.current() is NONE


def test_one_place_asks_for_them_and_one_holds_them() -> None:
    texts = {path.relative_to(SRC).as_posix(): path.read_text(encoding="utf-8") for path in SRC.rglob("*.py")}
    asks = {name for name, text in texts.items() if re.search(r"= RunOptions\.current\(\)", text)}
    assert asks == {"api/environment.py"}
    assert {name for name, text in texts.items() if "ContextVar(" in text} == {"compile/in_process.py"}


def test_listeners_of_before_are_still_called() -> None:
    """`penstock.api.environment.listeners`, as an example of 0.1 had it."""
    program = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    from penstock.api.environment import listeners\n"
        "assert [warning.category for warning in caught] == [DeprecationWarning], caught\n"
        "from penstock import StreamEnvironment\n"
        "env = StreamEnvironment('old', executor='inline')\n"
        "env.from_collection([1, 2, 3]).print()\n"
        "heard = []\n"
        "told = listeners.set((*(listeners.get() or (heard.append,)),))\n"
        "env.execute()\n"
        "listeners.reset(told)\n"
        "env.execute()\n"
        "print('heard', len(heard))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("heard 1\n"), done.stderr
