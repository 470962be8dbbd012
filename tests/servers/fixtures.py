"""Fixtures of real servers, one of each for a test process; a test that cannot get one skips and says how to get it.

Tests that share a server run on one worker (`tests/spreading.py`). A test that kills its server starts one of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.kafka import KafkaServer
from tests.servers.packages import UnavailableError
from tests.servers.postgres import PostgresServer

SERVERS = ("kafka", "postgres")
"""The names of the fixtures."""


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    pytest.importorskip("confluent_kafka", reason="pip install 'penstock[kafka]'")
    try:
        server = KafkaServer(tmp_path_factory.mktemp("kafka"))
    except UnavailableError as reason:
        pytest.skip(str(reason))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    try:
        server = PostgresServer()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    server.start()
    yield server
    server.stop()
