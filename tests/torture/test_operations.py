"""The parts of the campaign on a cluster, without the cluster: `make torture-ops` is the whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import FileSink, StreamEnvironment, read_output
from penstock.errors import AlreadyExistsError, NotFoundError, StorageError
from penstock.storage import open_storage
from penstock.storage.local import LocalStorage
from tests.torture.jobs.tapped import Tap, TappedSource
from tests.torture.operations.breaking import NobodyError, Operations
from tests.torture.operations.campaign import SETTLED, Campaign, StuckError
from tests.torture.operations.disk import fill, relieve, small_disk
from tests.torture.operations.faults import CARDS, LENGTHS_S, LOCAL, Fault, blows
from tests.torture.operations.jobs import ROOT, Member, TorturedJob
from tests.torture.operations.object_store import Mode, Trouble, object_store
from tests.torture.operations.switch import VARIABLE, Switch
from tests.torture.operations.switch import Trouble as FolderTrouble
from tests.torture.oracle import JOBS

TOUCHES = """
import sys
from penstock.storage import open_storage
storage = open_storage(sys.argv[1])
try:
    storage.create("a", b"1")
    print("created")
except Exception as error:
    print(type(error).__name__)
print(storage.exists("a"))
"""


def test_the_plan_is_a_function_of_the_seed_and_covers_everything() -> None:
    first, second = (blows(7, len(CARDS)) for _ in range(2))
    assert first == second != blows(8, len(CARDS))
    assert Counter((fault.kind, fault.job) for blow in first for fault in blow) == Counter(CARDS)
    assert {kind for kind, _ in CARDS} == set(LENGTHS_S)
    assert "full" not in {fault.kind for blow in blows(7, 60, without=frozenset({"full"})) for fault in blow}
    for blow in blows(3, 60):
        assert len({fault.part for fault in blow}) == len(blow) <= 2
        for fault in blow:
            least, most = LENGTHS_S[fault.kind]
            assert least <= fault.seconds <= most
            assert callable(getattr(Operations, "_" + fault.kind.replace("-", "_")))
    assert {len(blow) for blow in blows(3, 60)} == {1, 2}


# --- what is broken -------------------------------------------------------------------------------------------------------------


def touched(storage: Path, switch: Switch) -> subprocess.Popen[str]:
    """Another process that heeds the switch."""
    site = ROOT / "tests" / "torture" / "operations" / "site"
    path = os.pathsep.join(map(str, (site, ROOT / "src", ROOT)))
    return subprocess.Popen(
        [sys.executable, "-c", TOUCHES, str(storage)],
        env={**os.environ, VARIABLE: str(switch.path), "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_folder_that_is_switched_off_is_so_for_every_process(tmp_path: Path) -> None:
    switch = Switch(tmp_path / "switch.json")
    failing, losing, hanging = (tmp_path / "disk" / name for name in ("failing", "losing", "hanging"))
    outside = tmp_path / "diskette"
    switch.turn_on(FolderTrouble(str(tmp_path / "disk"), "hang"))
    waiting, free = touched(hanging, switch), touched(outside, switch)
    assert free.communicate(timeout=60)[0].split() == ["created", "True"]
    assert not hanging.exists()
    switch.turn_off()
    assert waiting.communicate(timeout=60)[0].split() == ["created", "True"]
    switch.turn_on(FolderTrouble(str(tmp_path / "disk"), "fail"))
    said = touched(failing, switch).communicate(timeout=60)[0].split()
    assert said == ["StorageError"]  # it does not get to know either whether the object is there
    switch.turn_on(FolderTrouble(str(tmp_path / "disk"), "lost"))
    assert touched(losing, switch).communicate(timeout=60)[0].split() == ["StorageError", "True"]


def test_what_a_disk_that_is_full_refuses_it_takes_when_there_is_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 1) as mounted:
        if not mounted:
            pytest.skip("only root may mount a small disk")
        storage = LocalStorage(tmp_path / "small" / "job")
        storage.create("a", b"1")
        fill(tmp_path / "small")
        with pytest.raises(StorageError, match="disk is full"):
            storage.create("b", b"1" * 5000)
        relieve(tmp_path / "small")
        storage.create("b", b"1" * 5000)
    assert not (tmp_path / "small" / "job").exists()


@pytest.mark.parametrize("mode", ["refused", "unavailable"])
def test_an_object_store_that_is_away_can_be_looked_at_all_the_same(mode: Mode) -> None:
    with object_store(1) as store:
        storage, direct = open_storage(store.uri("job")), open_storage(store.uri("job", direct=True))
        storage.create("a", b"1")
        store.proxy.trouble = Trouble(mode)
        with pytest.raises(StorageError):
            storage.create("b", b"2")
        assert store.proxy.troubled
        assert [listed.path for listed in direct.list()] == ["a"]


def test_an_object_store_that_loses_replies_has_done_what_it_was_asked_to() -> None:
    with object_store(2) as store:
        direct = open_storage(store.uri("job", direct=True))
        store.proxy.trouble = Trouble("lost", share=0.4)
        for number in range(10):
            try:
                open_storage(store.uri("job")).create(f"{number}", b"1")
            except AlreadyExistsError as error:
                raise AssertionError("its own object was not recognised") from error
            except StorageError:
                continue
            assert direct.read(f"{number}") == b"1"
        store.proxy.trouble = Trouble()


# --- what is told from outside --------------------------------------------------------------------------------------------------


def squared(number: int) -> dict[str, int]:
    return {"number": number, "square": number * number}


def test_a_tap_gives_all_that_it_lets_through_once_and_then_the_end(tmp_path: Path) -> None:
    tap = tmp_path / "tap"
    Tap(0).write(tap)
    env = StreamEnvironment("tapped", executor="inline", parallelism=2, storage=str(tmp_path / "job"), max_records_per_epoch=30)
    source = TappedSource.of(squared, str(tap), partitions=3, batch_size=10)
    env.from_source(source, name="numbers").sink_to(FileSink(str(tmp_path / "out")), name="out")
    steps = iter([Tap(50), Tap(171), Tap(171), Tap(200, last=True)])

    def open_further() -> None:
        for step in steps:
            step.write(tap)
            while json.loads(tap.read_text())["events"] > read() and not step.last:
                pass

    def read() -> int:
        try:
            return len(list(read_output(str(tmp_path / "out"))))
        except NotFoundError:
            return 0

    thread = threading.Thread(target=open_further)
    thread.start()
    assert env.execute().finished
    thread.join()
    assert sorted(row["number"] for row in read_output(str(tmp_path / "out"))) == list(range(200))


def job_of(folder: Path, command: list[str]) -> TorturedJob:
    said = folder / "said"
    with said.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
    job = TorturedJob(
        LOCAL,
        JOBS["ledger"],
        folder,
        str(folder / "job"),
        str(folder / "out.db"),
        open_storage(folder / "job"),
        lambda: folder / "out.db",
    )
    job.members.append(Member("local-0", process, said))
    return job


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    return Campaign(tmp_path, 1, 1, lambda text: None)


def test_a_job_that_does_not_commit_is_stuck(tmp_path: Path, campaign: Campaign) -> None:
    job = job_of(tmp_path, ["sleep", "600"])
    try:
        with pytest.raises(StuckError, match="local: no commit for 0 s"):
            campaign._wait_for_commits({LOCAL: job}, {LOCAL: 0}, 0.2)
        for epoch in range(1, SETTLED + 1):
            job.looked_at.create(f"epochs/{epoch:010}.json", b"{}")
        assert campaign._wait_for_commits({LOCAL: job}, {LOCAL: 0}, 0.2).keys() == {LOCAL}
    finally:
        job.end()


@pytest.mark.parametrize("code", [0, 3])
def test_a_process_that_ends_before_its_job_is_stuck(tmp_path: Path, campaign: Campaign, code: int) -> None:
    job = job_of(tmp_path, [sys.executable, "-c", f"print('why it ended'); raise SystemExit({code})"])
    job.members[0].process.wait()
    with pytest.raises(StuckError, match=rf"local-0 has ended with {code}:\nwhy it ended"):
        campaign._watch({LOCAL: job}, 0.1)


def test_input_that_was_never_read_is_lost(tmp_path: Path, campaign: Campaign) -> None:
    job = job_of(tmp_path, ["true"])
    job.members[0].process.wait()
    (tmp_path / "out.db").touch()
    campaign._judge({LOCAL: job}, 40)
    assert (campaign.outcome.lost, campaign.outcome.duplicated) == (40, 0)


def test_a_fault_waits_for_the_one_that_it_is_to_hit(tmp_path: Path) -> None:
    job = job_of(tmp_path, ["sleep", "600"])
    operations: Callable[..., Operations] = Operations
    try:
        breaking = operations(None, None, tmp_path, Switch(tmp_path / "switch"), {LOCAL: job}, 1)
        with pytest.raises(NobodyError), breaking.suffer(Fault("freeze-driver", LOCAL, 1, 0)):
            pass
        with breaking.suffer(Fault("freeze-standby", LOCAL, 1, 0)) as what:
            assert what.startswith("local-0")
            assert job.members[0].process.poll() is None
    finally:
        job.end()
