"""A job into PostgreSQL whose driver and database are killed, at moments that dice choose: every row is there once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connectors.postgres.tables import content
from tests.servers.packages import UnavailableError
from tests.servers.postgres import PostgresServer

ROWS = 6000
KEYS = 50
KILLS = ("driver", "database", "driver", "both", "driver", "database")
WITHIN_S = 150.0

PROGRAM = f"""
import sys
from penstock import GeneratorSource, StreamEnvironment
from penstock.connectors.postgres import PostgresSink

storage, dsn = sys.argv[1:]
env = StreamEnvironment("killed", executor="inline", parallelism=2, storage=storage, max_records_per_epoch=40, keep=4)
rows = env.from_source(GeneratorSource(lambda n: {{"id": n, "key": n % {KEYS}}}, count={ROWS}), name="in")
rows.sink_to(PostgresSink(dsn, "added", ["id", "key"]), name="added")
rows.sink_to(PostgresSink(dsn, "newest", ["id", "key"], key=["key"]), name="newest")
env.execute()
"""


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Of this test only: it is killed."""
    pytest.importorskip("psycopg", reason="pip install 'penstock[postgres]'")
    try:
        server = PostgresServer()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    server.start()
    yield server
    server.kill()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_driver_and_database_are_killed(server: PostgresServer, tmp_path: Path) -> None:
    dice = random.Random(17)
    import psycopg

    with psycopg.connect(server.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE added (id bigint, key bigint)")
        connection.execute("CREATE TABLE newest (id bigint, key bigint PRIMARY KEY)")
    deadline = time.monotonic() + WITHIN_S
    driver = started(server, tmp_path)
    done = []
    for target in KILLS:
        seen = len(content(server, "added"))
        while len(content(server, "added")) == seen and driver.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)  # it has come further since the last kill
        time.sleep(dice.uniform(0.0, 0.2))
        if driver.poll() is not None:
            break
        if target in ("driver", "both"):
            driver.kill()
            driver.wait()
        if target in ("database", "both"):
            server.kill()
            time.sleep(dice.uniform(0.0, 0.5))
            server.start()
        if driver.poll() is not None:
            driver = started(server, tmp_path)
        done.append(target)
    assert driver.wait(max(1.0, deadline - time.monotonic())) == 0, (tmp_path / "driver.log").read_text()[-3000:]
    assert len(done) >= 5, f"the job ended after {done}: nothing was shown"
    assert sorted(row[0] for row in content(server, "added")) == list(range(ROWS))
    assert content(server, "newest", order="key") == [(ROWS - KEYS + key, key) for key in range(KEYS)]


def started(server: PostgresServer, folder: Path) -> subprocess.Popen[bytes]:
    with open(folder / "driver.log", "ab") as log:
        command = [sys.executable, "-c", PROGRAM, str(folder / "storage"), server.dsn]
        environment = {**os.environ, "PENSTOCK_LOCAL_DIR": str(folder / "local")}
        return subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
