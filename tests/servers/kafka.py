"""A Kafka broker (KRaft, one node) on the loopback interface."""

from __future__ import annotations

import os
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.servers.owned import OwnedProcess, ServerFailedError, free_port
from tests.servers.packages import java, maven_jars

VERSION = "4.3.1"

_ARTIFACTS = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.2")
_HEAP = "-Xmx512m"
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "message.max.bytes": str(24 << 20),
    "replica.fetch.max.bytes": str(24 << 20),
}
_LOGGING = """<Configuration><Appenders><Console name="out"><PatternLayout pattern="%d %p %c{1}: %m%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""


class KafkaServer:
    """A broker with its data in `folder`: may be killed and started again, at the same port.

    `login`: a user and a password; `guarded` is where they are asked for (SASL PLAIN)."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, *, login: tuple[str, str] | None = None) -> None:
        jars = maven_jars(f"kafka-{VERSION}", _ARTIFACTS)
        folder.mkdir(parents=True, exist_ok=True)
        self._port = free_port()
        controller = free_port()
        self._java = [java(), _HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
        self._java += [f"-Dlog4j2.configurationFile={folder}/log4j2.xml", "-cp", f"{jars}/*"]
        all_settings = {
            **_SETTINGS,
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "log.dirs": f"{folder}/data",
            **(settings or {}),
        }
        if login is not None:
            all_settings = self._guarded(all_settings, *login)
        (folder / "log4j2.xml").write_text(_LOGGING)
        self._settings = folder / "server.properties"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in all_settings.items()))
        self.process = OwnedProcess([*self._java, "kafka.Kafka", str(self._settings)], folder / "kafka.log")
        self._format()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        self.process.start(self._answers)

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()

    def create_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        """`settings`: of the topic, with `_` for `.`."""
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        config = {setting.replace("_", "."): value for setting, value in settings.items()}
        admin = self.admin()  # its answers end with it
        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        admin.create_topics([topic])[name].result(30)

    def delete_topic(self, name: str) -> None:
        admin = self.admin()
        admin.delete_topics([name])[name].result(30)

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 2})

    def _guarded(self, settings: Mapping[str, str], user: str, password: str) -> dict[str, str]:
        """With a listener that asks for a login."""
        place = f"SASL_PLAINTEXT://127.0.0.1:{free_port()}"
        self.guarded = place.rpartition("/")[2]
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            **settings,
            "listeners": f"{settings['listeners']},{place}",
            "advertised.listeners": f"{settings['advertised.listeners']},{place}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{module} required user_{user}="{password}";',
        }

    def _format(self) -> None:
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = [*self._java, "kafka.tools.StorageTool", "format", "--standalone", "-t", cluster, "-c", str(self._settings)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=dict(os.environ))
        if done.returncode:
            raise ServerFailedError(f"the storage of Kafka could not be formatted:\n{done.stdout}{done.stderr}")

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            return bool(_quiet_admin(self.bootstrap).list_topics(timeout=1).brokers)
        except KafkaException:
            return False


def _quiet_admin(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "socket.connection.setup.timeout.ms": 2000})
