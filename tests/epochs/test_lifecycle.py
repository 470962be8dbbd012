"""The states of a driver: the table, the diagram and what drivers do agree; status.json and `penstock jobs` tell."""

from __future__ import annotations

import itertools
import re
import socket
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from penstock.cli.commands.jobs import describe_job
from penstock.config import RestartPolicy
from penstock.epochs import lifecycle
from penstock.epochs.history import EpochRecord
from penstock.epochs.lifecycle import OVER, TRANSITIONS, IllegalTransitionError, Lifecycle, State
from penstock.epochs.loop import EpochLoop
from penstock.epochs.setup import Setup
from penstock.epochs.status_writer import StatusWriter
from penstock.errors import EpochFailedError, FencedError
from penstock.executors.inline import InlineExecutor
from penstock.ids import Term
from penstock.jobs import paths, requests
from penstock.jobs.lease import VERSION as LEASE_VERSION
from penstock.jobs.lease import Lease
from penstock.jobs.requests import ask
from penstock.jobs.status import VERSION, Status, read_status
from penstock.jobs.terms import TermInfo
from penstock.runtime.messages import EpochOrder, TaskReport
from penstock.storage import LocalStorage, open_storage
from tests.cli.test_progress import RECORD
from tests.epochs.starting.test_rescaling import Asked
from tests.laws.trying import Interrupted, check_exact, program

STATES = get_args(State)


def drawn() -> set[tuple[str, str]]:
    """The ways of the diagram, and those that the sentence below it adds."""
    text = lifecycle.__doc__ or ""
    diagram, _, rest = text.partition("Any state but the last four leads to `failed`, and to `fenced` once")
    assert rest, "the sentence is gone"
    ways: set[tuple[str, str]] = set()
    for line in (line for line in diagram.splitlines() if "→" in line):
        states = [state.strip() for state in re.split(r"─[^→]*→", re.sub(r"^ *\w+: +", "", line))]
        ways.update(itertools.pairwise(states))
    ways |= {(state, "failed") for state in STATES if state not in OVER}
    return ways | {(state, "fenced") for state in STATES if state not in OVER and state != "standing by"}


def test_states_table_and_diagram_agree() -> None:
    table = {(state, to) for state, following in TRANSITIONS.items() for to in following}
    assert set(TRANSITIONS) == set(STATES)
    assert drawn() == table
    assert set(STATES[-4:]) == OVER
    assert all(to in STATES for _, to in table)


@pytest.mark.parametrize("state", STATES)
def test_only_what_follows_may_be_entered(state: State) -> None:
    for to in STATES:
        entered: list[State] = []
        driver = Lifecycle(state, entered.append)
        if to == state:
            driver.enter(to)
            assert entered == []
        elif to in TRANSITIONS[state]:
            driver.enter(to)
            assert (driver.state, entered) == (to, [to])
        else:
            with pytest.raises(IllegalTransitionError, match=f"'{state}' cannot be '{to}' next"):
                driver.enter(to)
            assert (driver.state, entered) == (state, [])


# --- what drivers do -----------------------------------------------------------------------------------------------------------


class Heard:
    """A listener that notes the states."""

    def __init__(self) -> None:
        self.states: list[State] = []

    def __call__(self, record: EpochRecord) -> None:
        pass

    def entered(self, state: State) -> None:
        self.states.append(state)


class Fails(InlineExecutor):
    """Fails in its second and third epoch."""

    runs = 0

    def run(self, order: EpochOrder) -> list[TaskReport]:
        self.runs += 1
        if self.runs in (2, 3):
            raise EpochFailedError(f"mishap {self.runs}")
        return super().run(order)


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LOOK_EVERY_S", 0.0)


def states_of(folder: Path, executor: Any = None, **settings: Any) -> list[State]:
    heard = Heard()
    program(folder, **settings).execute(executor=executor, listener=heard)
    return heard.states


def test_bounded_input_is_read_to_its_end(tmp_path: Path) -> None:
    assert states_of(tmp_path) == ["running", "finished"]
    status = read_status(open_storage(tmp_path / "storage"))
    assert status is not None
    assert (status.version, status.state, status.phase) == (VERSION, "finished", "finished")
    assert states_of(tmp_path) == ["running", "finished"], "a finished job, started again"


@pytest.mark.parametrize("drain", [False, True])
def test_a_job_is_stopped_or_drained(tmp_path: Path, drain: bool) -> None:
    def stop() -> None:
        ask(open_storage(tmp_path / "storage"), "stop", **({"drain": True} if drain else {}))

    assert states_of(tmp_path, Interrupted(3, stop)) == (
        ["running", "draining", "finished"] if drain else ["running", "stopping", "stopped"]
    )


def test_failures_are_recovered_from(tmp_path: Path) -> None:
    restart = RestartPolicy(attempts=3, first_delay=0.001)
    expected = ["running", "recovering", "running", "recovering", "running", "finished"]
    assert states_of(tmp_path, Fails(), restart=restart) == expected
    check_exact(tmp_path)


def test_a_job_that_fails_for_good(tmp_path: Path) -> None:
    heard = Heard()
    with pytest.raises(EpochFailedError):
        program(tmp_path).execute(executor=Fails(), listener=heard)
    assert heard.states == ["running", "recovering", "failed"]
    status = read_status(open_storage(tmp_path / "storage"))
    assert status is not None
    assert (status.phase, status.state, status.error) == ("failed", "failed", "mishap 2")


def test_a_stop_that_takes_too_long(tmp_path: Path) -> None:
    class Hangs(InlineExecutor):
        runs = 0

        def run(self, order: EpochOrder) -> list[TaskReport]:
            self.runs += 1
            if self.runs == 3:
                loop.request_stop()
                loop.give_up("it had not ended after 1 s")
                raise EpochFailedError("interrupted")
            return super().run(order)

    env, states = program(tmp_path), list[State]()
    setup = Setup(graph=env.graph, config=env.config, storage=open_storage(tmp_path / "storage"), executor=Hangs())
    loop = EpochLoop(setup, lifecycle=Lifecycle("taking over", states.append))
    result = loop.run()
    assert states == ["running", "giving up"]
    assert (result.stopped, result.finished) == (True, False)


def test_a_job_is_rescaled(tmp_path: Path) -> None:
    executor = Asked(tmp_path, [4])
    assert states_of(tmp_path, executor) == ["running", "rescaling", "taking over", "running", "finished"]


def test_a_driver_is_fenced(tmp_path: Path) -> None:
    heard = Heard()

    def another() -> None:
        program(tmp_path, take_over=True).execute()

    with pytest.raises(FencedError):
        program(tmp_path).execute(executor=Interrupted(3, another), listener=heard)
    assert heard.states == ["running", "fenced"]
    status = read_status(open_storage(tmp_path / "storage"))
    assert status is not None
    assert status.state == "finished", "it is the status of the driver that won"


def test_a_standby_takes_over(tmp_path: Path) -> None:
    assert states_of(tmp_path, standby=True, lease=0.2) == ["taking over", "running", "finished"]
    assert states_of(tmp_path, standby=True, lease=0.2) == ["finished"], "the job is over"


# --- what is shown -------------------------------------------------------------------------------------------------------------


def test_a_status_of_before_is_read(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    old = {"name": "shop", "phase": "running", "host": "here", "pid": 7, "updated_ms": 5, "records_in": 3}
    storage.replace(paths.STATUS, msgspec.json.encode(old))
    assert read_status(storage) == Status("shop", "running", "here", 7, 5, records_in=3, version=1, state="")


def test_the_list_of_jobs_shows_what_a_driver_does(tmp_path: Path) -> None:
    storage = open_storage(tmp_path / "storage")
    shown: list[str] = []

    def look() -> None:
        shown.append(describe_job(storage).shown)
        for state in ("recovering", "draining"):
            status = read_status(storage)
            assert status is not None
            storage.replace(paths.STATUS, msgspec.json.encode(msgspec.structs.replace(status, state=state)))
            shown.append(describe_job(storage).shown)

    program(tmp_path).execute(executor=Interrupted(3, look))
    assert shown == ["running", "running, recovering", "running, draining"]
    assert (describe_job(storage).shown, describe_job(storage).state) == ("finished", "")


def test_states_are_written_from_the_first_epoch_on(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    writer = StatusWriter(storage, "shop")
    found: list[str | None] = []
    states: tuple[State, ...] = ("running", "recovering", "running", "rescaling", "taking over", "stopping", "failed")
    for state in states:
        writer.entered(state)
        if state == "running":
            writer(RECORD)
        status = read_status(storage)
        found.append(None if status is None else status.state)
    assert found == ["running", "recovering", "running", "rescaling", "taking over", "stopping", "stopping"]
    writer.ended(None, RuntimeError("mishap"))
    status = read_status(storage)
    assert status is not None
    assert (status.phase, status.state, status.error) == ("failed", "failed", "mishap")


def test_a_take_over_is_shown(tmp_path: Path) -> None:
    """By the lease of the attempt: nothing is in status.json yet."""
    program(tmp_path).execute()
    storage = LocalStorage(tmp_path / "storage")
    host, pid = socket.gethostname(), 1
    term = TermInfo(term=Term(9), host=host, pid=pid, started_ms=2**60)
    storage.create(paths.term(Term(9)), msgspec.json.encode(term))
    storage.replace(paths.TAKE_OVER, msgspec.json.encode(Lease(LEASE_VERSION, Term(9), host, pid, 1, 0, 1000)))
    assert describe_job(storage).shown == "running, taking over"
