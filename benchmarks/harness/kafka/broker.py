"""A broker for the time of a benchmark: that of the tests, with a larger heap."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from types import TracebackType

from harness.progress import say
from tests.servers.kafka import KafkaServer

_numbers = count()


class Broker:
    def __init__(self, folder: Path) -> None:
        self._server = KafkaServer(folder, {"log.retention.ms": "-1"})
        self.bootstrap = self._server.bootstrap

    def __enter__(self) -> Broker:
        self._server.start()
        say(f"Kafka is at {self.bootstrap}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.kill()

    def topic(self, partitions: int = 4) -> str:
        name = f"bench-{next(_numbers)}"
        self._server.create_topic(name, partitions, retention_ms="-1")
        return name
