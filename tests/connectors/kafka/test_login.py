"""A broker that asks for a login: the password is where the program says, and is looked up again when it has changed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamEnvironment
from penstock.connectors.kafka import KafkaSink, KafkaSource
from tests.connectors.driving import Drive, context
from tests.connectors.kafka.topics import put, values
from tests.servers.kafka import KafkaServer
from tests.servers.packages import UnavailableError


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    try:
        server = KafkaServer(tmp_path_factory.mktemp("guarded"), login=("ann", "open-sesame"))
    except UnavailableError as reason:
        pytest.skip(str(reason))
    server.start()
    yield server
    server.kill()


def login(password: Path) -> dict[str, str]:
    names = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
    return {**names, "sasl.password": f"${{file:{password}}}"}


def test_from_topic_to_topic(guarded: KafkaServer, tmp_path: Path) -> None:
    guarded.create_topic("in")
    guarded.create_topic("out")
    put(guarded, "in", [{"n": n} for n in range(5)])
    (tmp_path / "password").write_text("open-sesame\n")
    options = login(tmp_path / "password")
    storage = tmp_path / "job"
    env = StreamEnvironment("guarded", executor="inline", parallelism=1, storage=str(storage))
    stream = env.from_source(KafkaSource(guarded.guarded, "in", stop="now", options=options), name="in")
    stream.sink_to(KafkaSink(guarded.guarded, "out", options=options), name="out")
    assert "open-sesame" not in env.explain()
    env.execute()
    assert values(guarded, "out") == [{"n": n} for n in range(5)]
    kept = [path for path in storage.rglob("*") if path.is_file() and b"open-sesame" in path.read_bytes()]
    assert kept == [], "the secret is nowhere in the job's storage"


def test_a_password_that_changes(guarded: KafkaServer, tmp_path: Path, caplog: Any) -> None:
    """A refused login is told, and nothing is lost: with the right password reading goes on."""
    guarded.create_topic("rotated")
    put(guarded, "rotated", [{"n": 1}])
    password = tmp_path / "password"
    password.write_text("wrong-word")
    d = Drive(KafkaSource(guarded.guarded, "rotated", options=login(password)), context("/nowhere"))
    with caplog.at_level(logging.WARNING):
        assert d.plan().splits == ()
    assert "uthentication" in caplog.text
    assert "wrong-word" not in caplog.text
    password.write_text("open-sesame")
    d.step()
    assert d.all == [{"n": 1}]
