"""The servers that tests start: they answer, survive being killed, and die with the process that owns them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.servers.kafka import KafkaServer
from tests.servers.owned import OwnedProcess, ServerFailedError, accepts, free_port
from tests.servers.packages import UnavailableError, maven_jars, program
from tests.servers.postgres import PostgresServer


def test_a_killed_broker_comes_back_at_its_port_with_its_topics(tmp_path: Path) -> None:
    pytest.importorskip("confluent_kafka")
    try:
        server = KafkaServer(tmp_path)
    except UnavailableError as reason:
        pytest.skip(str(reason))
    server.start()
    try:
        server.create_topic("kept", 3)
        server.kill()
        assert not server.process.running
        server.start()
        assert len(server.admin().list_topics("kept", timeout=10).topics["kept"].partitions) == 3
    finally:
        server.kill()


def test_a_killed_database_comes_back_at_its_port() -> None:
    try:
        server = PostgresServer()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    server.start()
    try:
        server.kill()
        assert not accepts(server.port)
        server.start()
        assert accepts(server.port)
    finally:
        server.stop()


def test_a_server_dies_with_its_owner(tmp_path: Path) -> None:
    """Say a test run that is killed."""
    program_text = f"""
import sys, time
sys.path.insert(0, {str(Path.cwd())!r})
from pathlib import Path
from tests.servers.owned import OwnedProcess
server = OwnedProcess(["sleep", "600"], Path({str(tmp_path / "log")!r}))
server.start(lambda: True)
print(server.pid, flush=True)
time.sleep(600)
"""
    owner = subprocess.Popen([sys.executable, "-c", program_text], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    for _ in range(500):
        if not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text():
            break
        time.sleep(0.02)
    else:
        raise AssertionError("the server has outlived its owner")


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    server = OwnedProcess(["sh", "-c", "echo no such port; exit 3"], tmp_path / "log")
    with pytest.raises(ServerFailedError, match="no such port"):
        server.start(lambda: False)


def test_what_cannot_be_had_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SERVERS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="apt-get install maven"):
        maven_jars("kafka-0", ["a:b:1"])
    with pytest.raises(UnavailableError, match="apt-get install redis-server"):
        program("redis-server", "redis-server")


def test_free_ports_are_free() -> None:
    assert not accepts(free_port())
