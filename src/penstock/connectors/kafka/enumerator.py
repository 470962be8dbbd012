"""Plans what an epoch reads of Kafka: on the driver, by one look-up of all ends.

Laws:
- All that decides is in the position: the offsets to read next, those to stop at, the ids of the topics.
- A split is a range of offsets below the end that readers may see (with `read_committed`, of what is committed), so reading
  one ends.
- What cannot be read any more, and a topic that is not the one of before, is named, and what happens is chosen in the program.
- A cluster that does not answer is nothing to read: the lag stays what it was, and it is asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.cluster import BrokerAwayError, Cluster, Place, Topic
from penstock.connectors.kafka.position import KafkaPosition, TopicPosition, read_position, written
from penstock.connectors.kafka.start import in_ms
from penstock.connectors.protocol import Enumerator, Limits, Planned, Position, SourceContext, Split
from penstock.errors import PenstockError, SourceError
from penstock.ids import Epoch

if TYPE_CHECKING:
    from penstock.connectors.kafka.source import KafkaSource

log = logging.getLogger("penstock.kafka")

PIECE = 8192
"""Offsets of a split, where partitions are read side by side in event time."""

_AGAIN_MS = 1000
"""How long to wait before a cluster that did not answer is asked again."""

_LOOK_MS = 5
"""How long to wait before asking for more where there is nothing to read: at first, then longer and longer."""

_MOST_DOUBLED = 4

_COMMIT_MS = 1000
_BURST_S = 1.0


class KafkaEnumerator(Enumerator):
    def __init__(self, source: KafkaSource, context: SourceContext) -> None:
        self._source = source
        self._cluster = Cluster(source)
        self._group = source.group or f"penstock-{context.job}-{context.step}"
        self._in_pieces = context.ordering == "time"
        self._topics: dict[str, Topic] = {}
        self._looked_ms: int | None = None
        self._began: KafkaPosition | None = None
        """Where reading begins, as long as nothing is committed: asked again, that must not move."""
        self._given_from: Position = None
        self._quiet = 0
        """How often in a row there was nothing to read."""
        self._away = False
        self._lag = 0
        self._tokens = _BURST_S * (source.rate or 0)
        self._tokens_ms: int | None = None
        self._committed_ms = 0
        self._uncommitted: Position = None
        self._committing: Any = None

    def plan(self, position: Position, limits: Limits, now_ms: int) -> Planned:
        try:
            planned = self._plan(position, limits, now_ms)
        except BrokerAwayError as error:
            if not self._away:
                log.warning("Kafka at %s does not answer; asking again until it does: %s", self._source.bootstrap, error)
            self._away, self._looked_ms = True, None
            known = read_position(position).topics
            partitions = [f"{name}-{i}" for name, topic in known.items() for i in range(len(topic.next))]
            return Planned(position=position, partitions=partitions, wake_ms=now_ms + _AGAIN_MS, backlog=self._lag)
        if self._away:
            log.warning("Kafka at %s answers again", self._source.bootstrap)
            self._away = False
        return planned

    def committed(self, position: Position, epoch: Epoch) -> None:
        self._began = None
        if self._source.commit_offsets:
            self._uncommitted = position

    def idle(self) -> bool:
        """Everything that was there when it was looked up last has been handed over."""
        return not self._away

    def reached(self, position: Position, goal: Position) -> bool | None:
        here, there = read_position(position).topics, read_position(goal).topics
        for name, topic in there.items():
            mine = here.get(name)
            if mine is None or mine.id != topic.id:
                return None
            if any(a < b for a, b in zip(mine.next, topic.next, strict=False)) or len(mine.next) < len(topic.next):
                return False
        return True

    def shed(self, position: Position, now_ms: int) -> tuple[Position, int]:
        """At most once, and overloaded: go on from the ends."""
        at = self._resume(position, now_ms)
        ends = self._cluster.latest(_places(at))
        shed, topics = 0, {}
        for name, topic in at.topics.items():
            newest = [max(offset, ends[name, i]) for i, offset in enumerate(topic.next)]
            shed += sum(newest) - sum(topic.next)
            topics[name] = TopicPosition(topic.id, newest, topic.stop, topic.caught_up_ms)
        return written(KafkaPosition(topics)), shed

    def close(self) -> None:
        self._tell_group(force=True)
        self._cluster.close()

    # --- planning ----------------------------------------------------------------------------------------------------------

    def _plan(self, position: Position, limits: Limits, now_ms: int) -> Planned:
        self._tell_group(now_ms=now_ms)
        repeated = position is not None and position == self._given_from  # what was given from there was not read
        at = self._resume(position, now_ms)
        places = _places(at)
        ends = self._cluster.latest(places)
        if self._looked_ms == now_ms or repeated:
            at = self._checked(at, ends)
        stops = {(name, i): stop for name, topic in at.topics.items() for i, stop in enumerate(topic.stop or ())}
        until = {place: min(ends[place], stops[place]) if place in stops else ends[place] for place in places}
        left = {(name, i): until[name, i] - offset for name, topic in at.topics.items() for i, offset in enumerate(topic.next)}
        wanting = {place: n for place, n in left.items() if n > 0 and _name(place) not in limits.full}
        shares = _shared(wanting, self._allowed(limits, len(wanting), now_ms))
        self._tokens -= sum(shares.values())
        splits, topics = [], {}
        for name, topic in at.topics.items():
            nexts, times = [], []
            for i, offset in enumerate(topic.next):
                take = shares.get((name, i), 0)
                splits += self._splits(name, i, offset, offset + take)
                nexts.append(offset + take)
                before = topic.caught_up_ms[i] if i < len(topic.caught_up_ms) else None
                times.append(now_ms if take and offset + take >= ends[name, i] else before)
            topics[name] = TopicPosition(topic.id, nexts, topic.stop, times)
        after = KafkaPosition(topics)
        more = [place for place, n in left.items() if n > shares.get(place, 0)]
        self._lag = sum(max(0, ends[place] - offset) for place, offset in _nexts(after).items())
        ended = self._source.bounded and not more
        self._given_from = position if splits else None
        self._quiet = 0 if splits else self._quiet + 1
        return Planned(
            splits=splits,
            position=written(after),
            partitions=[_name(place) for place in places if place not in stops or left[place] > 0],
            exhausted=ended and all(offset >= stops[place] for place, offset in _nexts(after).items() if place in stops),
            wake_ms=None if splits else self._wake_ms(bool(more), now_ms),
            backlog=sum(left.values()) - sum(shares.values()),
            more=[_name(place) for place in more],
        )

    def _splits(self, topic: str, partition: int, start: int, stop: int) -> list[Split]:
        if start >= stop:
            return []
        size = PIECE if self._in_pieces else stop - start
        return [
            Split(
                partition=_name((topic, partition)),
                what=[topic, partition, first, min(stop, first + size)],
                records=min(stop, first + size) - first,
                estimated=True,  # transactions and compaction leave gaps
            )
            for first in range(start, stop, size)
        ]

    def _allowed(self, limits: Limits, wanting: int, now_ms: int) -> int:
        """How many messages: where partitions are read side by side in event time, every one of them must get some."""
        allowed = max(wanting if self._in_pieces else 1, min(limits.records, limits.bytes // self._source.record_bytes))
        rate = self._source.rate
        if rate is None:
            return allowed
        since = 0 if self._tokens_ms is None else max(0, now_ms - self._tokens_ms) / 1000
        self._tokens_ms = now_ms
        self._tokens = min(max(1.0, rate * _BURST_S), self._tokens + since * rate)
        return min(allowed, int(self._tokens))

    def _wake_ms(self, more: bool, now_ms: int) -> int | None:
        if more and self._source.rate is not None:
            return now_ms + max(1, round(1000 / self._source.rate))
        return now_ms + _LOOK_MS * (1 << min(_MOST_DOUBLED, self._quiet - 1))

    # --- where it is -------------------------------------------------------------------------------------------------------

    def _resume(self, position: Position, now_ms: int) -> KafkaPosition:
        """The position with what is new: topics, partitions; or where reading begins."""
        source = self._source
        if self._looked_ms is None or now_ms - self._looked_ms >= source.discover_ms or position is None:
            self._topics, self._looked_ms = self._cluster.topics(), now_ms
            if missing := [name for name in source.topics if name not in self._topics]:
                raise SourceError(
                    f"there is no topic {missing[0]} at {source.bootstrap}",
                    hint="create it, or correct the name; nothing of what was read is lost",
                    nature="configuration",
                )
        if position is None and self._began is not None:
            return self._with_new(self._began)
        at = read_position(position)
        at = KafkaPosition({name: self._same_topic(name, topic) for name, topic in at.topics.items() if self._wanted(name)})
        if position is None:
            self._began = at = self._first()
            return at
        return self._with_new(at)

    def _wanted(self, name: str) -> bool:
        """A topic that a pattern matched, and that is gone, is not read any more."""
        return name in self._topics

    def _same_topic(self, name: str, topic: TopicPosition) -> TopicPosition:
        found = self._topics[name]
        source = self._source
        if found.id != topic.id:
            if source.on_recreated == "fail":
                raise SourceError(
                    f"the topic {name} is another one than before: it was created again, or is of another cluster",
                    detail=f"id {topic.id}, {len(topic.next)} partitions\nnow id {found.id}, {found.partitions} partitions",
                    hint='choose: on_recreated="earliest" reads it from its beginning, "timestamp" from the time reached',
                    nature="configuration",
                )
            return self._begun_again(name, topic, found)
        if found.partitions < len(topic.next):
            raise SourceError(
                f"the topic {name} has {found.partitions} partitions, and had {len(topic.next)}",
                hint="Kafka does not take partitions away: is this the right cluster?",
                nature="configuration",
            )
        return topic

    def _begun_again(self, name: str, topic: TopicPosition, found: Topic) -> TopicPosition:
        places = [(name, i) for i in range(found.partitions)]
        if self._source.on_recreated == "earliest":
            offsets = self._cluster.earliest(places)
            log.warning("the topic %s was created again: it is read from its beginning", name)
        else:
            reached = [ms for ms in topic.caught_up_ms if ms is not None]
            if len(reached) < len(topic.next):
                raise SourceError(
                    f"the topic {name} is another one than before, and it is not known which time had been reached",
                    hint='start=datetime(...) under a new name of the step, or on_recreated="earliest"',
                    nature="configuration",
                )
            overlap_ms = round(self._source.overlap.total_seconds() * 1000)
            when = min(reached) - overlap_ms
            offsets = self._cluster.at_time(dict.fromkeys(places, when))
            log.warning(
                "the topic %s is another one: it is read from %d ms on; messages of the overlap are read twice", name, when
            )
        return TopicPosition(found.id, [offsets[place] for place in places], None, [None] * found.partitions)

    def _with_new(self, at: KafkaPosition) -> KafkaPosition:
        """With topics and partitions that are new: they are read from their beginning, for nothing of them has been read."""
        new = [
            (name, i)
            for name, topic in self._topics.items()
            for i in range(len(at.topics[name].next) if name in at.topics else 0, topic.partitions)
        ]
        if not new or self._source.bounded:
            return at
        offsets = self._cluster.earliest(new)
        topics = dict(at.topics)
        for name, i in new:
            log.info("new: partition %d of %s", i, name)
            old = topics.get(name, TopicPosition(self._topics[name].id, []))
            times: list[int | None] = [*old.caught_up_ms, *[None] * (len(old.next) - len(old.caught_up_ms)), None]
            topics[name] = TopicPosition(old.id, [*old.next, offsets[name, i]], old.stop, times)
        return KafkaPosition(topics)

    def _first(self) -> KafkaPosition:
        """Where the program says that reading begins, and ends."""
        places = [(name, i) for name, topic in self._topics.items() for i in range(topic.partitions)]
        starts = self._starts(places)
        stops = self._stops(places)
        topics = {}
        for name, topic in self._topics.items():
            numbers = range(topic.partitions)
            stop = None if stops is None else [max(starts[name, i], stops[name, i]) for i in numbers]
            topics[name] = TopicPosition(topic.id, [starts[name, i] for i in numbers], stop, [None] * topic.partitions)
        return KafkaPosition(topics)

    def _starts(self, places: Sequence[Place]) -> dict[Place, int]:
        start = self._source.start
        if start == "latest":
            return self._cluster.latest(places)
        earliest = self._cluster.earliest(places)
        if isinstance(start, datetime):
            return self._cluster.at_time(dict.fromkeys(places, in_ms(start)))
        if start == "group":
            committed = self._cluster.committed(places, self._group)
            return {place: max(committed.get(place, earliest[place]), earliest[place]) for place in places}
        if isinstance(start, Mapping):
            self._check_known(start, places)
            return {place: start.get(_colon(place), earliest[place]) for place in places}
        return earliest

    def _stops(self, places: Sequence[Place]) -> dict[Place, int] | None:
        stop = self._source.stop
        if stop is None:
            return None
        if isinstance(stop, datetime):
            return self._cluster.at_time(dict.fromkeys(places, in_ms(stop)))
        ends = self._cluster.latest(places)
        if isinstance(stop, Mapping):
            self._check_known(stop, places)
            return {place: stop.get(_colon(place), ends[place]) for place in places}
        return ends

    def _check_known(self, offsets: Mapping[str, int], places: Sequence[Place]) -> None:
        known = {_colon(place) for place in places}
        if unknown := sorted(set(offsets) - known):
            raise SourceError(
                f"an offset is given for {unknown[0]}, which there is not", hint=f"there are {', '.join(sorted(known))}"
            )

    def _checked(self, at: KafkaPosition, ends: Mapping[Place, int]) -> KafkaPosition:
        """Is what comes next still there?"""
        begins = self._cluster.earliest(_places(at))
        topics = dict(at.topics)
        for (name, i), offset in _nexts(at).items():
            begin, end = begins[name, i], ends[name, i]
            if begin <= offset <= max(begin, end):
                continue
            if offset > end:
                raise SourceError(
                    f"partition {i} of the topic {name} ends at offset {end}, and has been read up to {offset}",
                    hint="messages were lost by the cluster (unclean leader election), or it is another cluster",
                    nature="configuration",
                )
            if self._source.on_lost == "fail":
                raise SourceError(
                    f"{begin - offset} messages of partition {i} of the topic {name} were deleted before they were read",
                    detail=f"next to read: offset {offset}; the first that is there: {begin}",
                    hint='choose where to go on: on_lost="earliest" or "latest"; and keep messages for longer: retention.ms',
                    nature="configuration",
                )
            to = begin if self._source.on_lost == "earliest" else end
            log.warning("messages %d to %d of partition %d of %s are lost: they were deleted unread", offset, to - 1, i, name)
            topic = topics[name]
            topics[name] = TopicPosition(topic.id, [*topic.next[:i], to, *topic.next[i + 1 :]], topic.stop, topic.caught_up_ms)
        return KafkaPosition(topics)

    # --- the group ---------------------------------------------------------------------------------------------------------

    def _tell_group(self, now_ms: int = 0, *, force: bool = False) -> None:
        """For monitoring only: it may fail, and nothing waits for it."""
        if self._uncommitted is None or not (force or now_ms - self._committed_ms >= _COMMIT_MS):
            return
        offsets = _nexts(read_position(self._uncommitted))
        self._uncommitted, self._committed_ms = None, now_ms
        try:
            self._committing = self._cluster.commit(offsets, self._group)
            if force:
                self._committing.result(5)
        except PenstockError as error:
            log.info("offsets could not be committed to the group %s: %s", self._group, error)
        except Exception as error:  # of Kafka's library, or a timeout
            log.info("offsets could not be committed to the group %s: %s", self._group, error)


def _places(position: KafkaPosition) -> list[Place]:
    return [(name, i) for name, topic in position.topics.items() for i in range(len(topic.next))]


def _nexts(position: KafkaPosition) -> dict[Place, int]:
    return {(name, i): offset for name, topic in position.topics.items() for i, offset in enumerate(topic.next)}


def _name(place: Place) -> str:
    """Of a source partition."""
    return f"{place[0]}-{place[1]}"


def _colon(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def _shared(left: Mapping[Place, int], allowed: int) -> dict[Place, int]:
    """How much of each partition is taken: alike, and what some do not need goes to the others. Pure."""
    shares: dict[Place, int] = {}
    for number, (place, n) in enumerate(sorted(left.items(), key=lambda item: (item[1], item[0]))):
        share = min(n, allowed // (len(left) - number))
        if share:
            shares[place] = share
            allowed -= share
    return shares
