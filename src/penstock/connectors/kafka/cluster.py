"""What the driver asks a Kafka cluster: topics and their partitions, offsets of all partitions in one request, a group's
offsets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.clients import admin_library, client_library, configuration, failure, named, nature_of
from penstock.errors import PenstockError, SourceError

if TYPE_CHECKING:
    from penstock.connectors.kafka.source import KafkaSource

Place = tuple[str, int]
"""A topic and the number of a partition."""

_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster has it now."""

    id: str
    partitions: int


class BrokerAwayError(SourceError):
    """The cluster does not answer: ask again later."""


class Cluster:
    """Asks for one source. Raises `BrokerAwayError` if nobody answers, `SourceError` for what trying again does not mend."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._kafka = client_library("KafkaSource")
        self._admins = admin_library("KafkaSource")
        self._client: Any = None
        self._settings: dict[str, str] = {}
        self._last_error = ""
        """What the client has told beside its answers, such as that a login was refused."""

    def topics(self) -> dict[str, Topic]:
        """The topics of the source that exist, by name."""
        admin = self._admin()
        try:
            if self._source.pattern is not None:
                pattern = re.compile(self._source.pattern)
                listed = admin.list_topics(timeout=_TIMEOUT_S).topics
                names = sorted(name for name in listed if pattern.fullmatch(name) and not name.startswith("__"))
            else:
                names = list(self._source.topics)
            if not names:
                return {}
            asked = admin.describe_topics(self._kafka.TopicCollection(names), request_timeout=_TIMEOUT_S)
        except self._kafka.KafkaException as error:
            raise self._failed("could not list topics", error) from error
        found = {}
        for name, future in asked.items():
            try:
                described = future.result(_TIMEOUT_S + 5)
            except self._kafka.KafkaException as error:
                if named(error) == "UNKNOWN_TOPIC_OR_PART":
                    continue
                raise self._failed(f"could not look at the topic {name}", error) from error
            found[name] = Topic(str(described.topic_id), len(described.partitions))
        return found

    def earliest(self, places: Sequence[Place]) -> dict[Place, int]:
        return self._offsets(places, self._admins.OffsetSpec.earliest())

    def latest(self, places: Sequence[Place]) -> dict[Place, int]:
        """Where the partitions end: what is not committed yet is beyond, unless it is read as well."""
        return self._offsets(places, self._admins.OffsetSpec.latest())

    def at_time(self, times: Mapping[Place, int]) -> dict[Place, int]:
        """The first record of each partition that is not older; the end, where there is none."""
        found: dict[Place, int] = {}
        for time in sorted(set(times.values())):
            places = [place for place, at in times.items() if at == time]
            found |= self._offsets(places, self._admins.OffsetSpec.for_timestamp(time))
        if none := [place for place, offset in found.items() if offset < 0]:
            found |= self.latest(none)
        return found

    def committed(self, places: Sequence[Place], group: str) -> dict[Place, int]:
        """What a group has committed; partitions of which it has not are left out."""
        try:
            partitions = [self._kafka.TopicPartition(*place) for place in places]
            request = self._kafka.ConsumerGroupTopicPartitions(group, partitions)
            (future,) = self._admin().list_consumer_group_offsets([request], request_timeout=_TIMEOUT_S).values()
            found = future.result(_TIMEOUT_S + 5).topic_partitions
        except self._kafka.KafkaException as error:
            raise self._failed(f"could not look at the offsets of group {group}", error) from error
        return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}

    def commit(self, offsets: Mapping[Place, int], group: str) -> Any:
        """Begin to commit a group's offsets; returns what can be waited for."""
        partitions = [self._kafka.TopicPartition(*place, offset) for place, offset in offsets.items()]
        request = self._kafka.ConsumerGroupTopicPartitions(group, partitions)
        (future,) = self._admin().alter_consumer_group_offsets([request], request_timeout=_TIMEOUT_S).values()
        return future

    def close(self) -> None:
        self._client = None

    def _offsets(self, places: Iterable[Place], what: Any) -> dict[Place, int]:
        request = {self._kafka.TopicPartition(*place): what for place in places}
        if not request:
            return {}
        level = self._kafka.IsolationLevel
        isolation = level.READ_COMMITTED if self._source.isolation == "read_committed" else level.READ_UNCOMMITTED
        found: dict[Place, int] = {}
        try:
            asked = self._admin().list_offsets(request, isolation_level=isolation, request_timeout=_TIMEOUT_S)
            for partition, future in asked.items():
                found[partition.topic, partition.partition] = future.result(_TIMEOUT_S + 5).offset
        except self._kafka.KafkaException as error:
            raise self._failed("could not look up offsets", error) from error
        return found

    def _admin(self) -> Any:
        """The client; another one if a secret has changed."""
        source = self._source
        settings = configuration(source.bootstrap, _for_admin(source.options), "KafkaSource", client_id="penstock")
        if self._client is None or settings != self._settings:
            try:
                self._client = self._admins.AdminClient({**settings, "error_cb": self._told})
                self._settings = settings
            except self._kafka.KafkaException as error:
                raise self._failed("cannot be set up", error) from error
        return self._client

    def _told(self, error: Any) -> None:
        if error.name() not in ("_ALL_BROKERS_DOWN", "_TRANSPORT"):
            self._last_error = str(error)

    def _failed(self, problem: str, error: BaseException) -> PenstockError:
        source = self._source
        if self._client is not None:
            self._client.poll(0)
        cause = (
            RuntimeError(f"{error}; {self._last_error}") if self._last_error and nature_of(named(error)) == "transient" else error
        )
        self._last_error = ""
        made = failure(SourceError, f"the Kafka source {problem}", cause, source.bootstrap, source.options)
        if made.nature == "transient":
            return BrokerAwayError(made.what, detail=made.detail, hint=made.hint, nature="transient")
        return made


def _for_admin(options: Mapping[str, str]) -> dict[str, str]:
    """Options of a consumer that an admin client does not know would only be warned of; those of fetching are left out."""
    return {name: value for name, value in options.items() if not name.startswith(("fetch.", "queued.", "max.partition"))}
