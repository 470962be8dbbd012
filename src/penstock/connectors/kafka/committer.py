"""Sends what is staged, on the driver: an epoch in a transaction that also records the epoch (`transactions`).

A `KafkaCommitter` keeps its producers between epochs; when anything goes wrong they are closed, and the next attempt begins with
new ones, which find out what was recorded. While no broker answers it goes on trying, for as long as `patience` says: the
epochs that follow wait for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.clients import client_library, named, nature_of
from penstock.connectors.kafka.transactions import Ledger, Message, kafka_failure
from penstock.connectors.protocol import Committable, Committer, CommitterContext, OutputSince
from penstock.connectors.staging.leftovers import leftovers
from penstock.connectors.staging.rows import decode_rows, staged_attempt, staged_paths, staged_rows
from penstock.errors import AlreadyExistsError, SinkError, StorageError
from penstock.failpoints import fail_point
from penstock.ids import Epoch

if TYPE_CHECKING:
    from penstock.connectors.kafka.sink import KafkaSink

log = logging.getLogger("penstock.kafka")

WHOLE = "all"
"""The ledger of a sink that sends an epoch as a whole."""

_FENCED = ("_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
_AGAIN_S = 1.0
_MOST_PRODUCERS = 16


class DirectCommitter(Committer):
    """Of a sink whose messages have been sent."""

    def commit(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        return


class KafkaCommitter(Committer):
    def __init__(self, sink: KafkaSink, context: CommitterContext) -> None:
        self._sink = sink
        self._context = context
        self._storage = context.storage
        self._ledgers: dict[str, Ledger] = {}
        self._known: set[str] = set()

    def commit(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        parts = [part for part in committables if part["path"] is not None]
        if not parts:
            return
        if self._sink.atomic == "epoch":
            self._deliver(WHOLE, epoch, parts)
        else:
            by_partition: dict[str, list[Committable]] = {}
            for part in parts:
                by_partition.setdefault(str(part["partition"]), []).append(part)
            with ThreadPoolExecutor(min(_MOST_PRODUCERS, len(by_partition)), "penstock-kafka") as pool:
                waiting = [pool.submit(self._deliver, name, epoch, mine) for name, mine in sorted(by_partition.items())]
                for each in waiting:
                    each.result()
        fail_point("kafka:sent")
        with suppress(StorageError):
            self._storage.delete(staged_paths(parts))

    def abort(self, epoch: Epoch, committables: Sequence[Committable]) -> None:
        self._storage.delete(staged_paths(committables))

    def sweep(self) -> int:
        left = leftovers(self._storage, f"{self._context.folder}/staged", staged_attempt, self._context)
        self._storage.delete(left)
        return len(left)

    def published_after(self, epoch: Epoch) -> OutputSince:
        names = self._used()
        recorded = [number for name in names if (number := self._guarded(name, lambda ledger: ledger.recorded)) is not None]
        if not recorded:
            return OutputSince(epochs=0, records=0)
        newest = max(recorded)
        return OutputSince(newest=Epoch(newest) if newest else None, epochs=0 if newest <= epoch else None)

    def fence(self, at: Epoch) -> None:
        """Record an epoch without messages: a driver that is late finds it, and sends nothing."""
        for name in self._used() or [WHOLE]:
            self._deliver(name, at, ())

    def close(self) -> None:
        for ledger in self._ledgers.values():
            ledger.close()
        self._ledgers.clear()

    def _deliver(self, name: str, epoch: Epoch, parts: Sequence[Committable]) -> None:
        def send(ledger: Ledger) -> None:
            if ledger.recorded is not None and ledger.recorded >= epoch:
                return
            topic = self._sink.topic if isinstance(self._sink.topic, str) else None
            ledger.send(epoch, self._messages(parts), topic)

        self._guarded(name, send)

    def _messages(self, parts: Sequence[Committable]) -> Iterator[Message]:
        for rows in staged_rows(self._storage, parts, decode_rows):
            for topic, value, key, time_ms, headers in rows:
                yield Message(topic, value, key, time_ms, headers and [(name, held) for name, held in headers])

    def _guarded(self, name: str, action: Any) -> Any:
        """Do it with a ledger; again, with another one, as long as the brokers do not answer."""
        sink = self._sink
        library = client_library("KafkaSink")
        deadline = time.monotonic() + sink.patience_s
        told = False
        while True:
            try:
                return action(self._ledger(name))
            except library.KafkaException as error:
                self._drop(name)
                fenced = named(error) in _FENCED
                lasting = nature_of(named(error)) == "configuration"
                if fenced or lasting or time.monotonic() > deadline:
                    what = "was fenced off" if fenced else "could not send"
                    raise kafka_failure(f"the sink {self._context.step} {what}", error, sink.bootstrap, sink.options) from error
                if not told:
                    log.warning("the sink %s waits for Kafka at %s: %s", self._context.step, sink.bootstrap, error)
                    told = True
                time.sleep(_AGAIN_S)
            except BaseException:
                self._drop(name)
                raise

    def _ledger(self, name: str) -> Ledger:
        found = self._ledgers.get(name)
        if found is None:
            sink = self._sink
            found = Ledger(
                sink.bootstrap,
                sink.options,
                name=f"penstock-{self._context.job}-{self._context.step}-{name}",
                topic=sink.ledger_topic,
                compression_type=sink.compression,
            )
            try:
                self._check_record(name, found)
            except BaseException:
                found.close()
                raise
            self._ledgers[name] = found
        return found

    def _drop(self, name: str) -> None:
        ledger = self._ledgers.pop(name, None)
        if ledger is not None:
            ledger.close()

    # --- which ledgers there are: a file for each in the job's storage -----------------------------------------------------

    def _check_record(self, name: str, ledger: Ledger) -> None:
        """A ledger that was used before has a record, or Kafka has forgotten it."""
        if ledger.recorded is not None:
            self._known.add(name)
        elif name in self._used() and self._sink.on_lost_record == "fail":
            raise SinkError(
                f"Kafka has no record any more of what the sink {self._context.step} has sent",
                detail=f"consumer group {ledger.name}, topic {self._sink.ledger_topic}",
                hint="offsets.retention.minutes has passed, or the topic was created again. Look at the end of the topic, then "
                'choose KafkaSink(on_lost_record="send"): the newest epoch may then be there twice',
                nature="configuration",
            )
        if name not in self._known and name not in self._used():
            self._check_topics(ledger)
            # Before anything is sent; so it may say that there was a record when there was none yet.
            self._guard_first(name, ledger)
        self._known.add(name)

    def _check_topics(self, ledger: Ledger) -> None:
        sink = self._sink
        for topic in {sink.ledger_topic, *([sink.topic] if isinstance(sink.topic, str) else [])}:
            if not ledger.has_topic(topic):
                raise SinkError(
                    f"the sink {self._context.step}: there is no topic {topic} at {sink.bootstrap}",
                    hint="create it; what is staged is kept, and sent when the job goes on",
                    nature="configuration",
                )

    def _guard_first(self, name: str, ledger: Ledger) -> None:
        """Record that nothing was sent, then note that there is a record."""
        if ledger.recorded is None:
            ledger.send(0, (), None)
        with suppress(AlreadyExistsError):
            self._storage.create(f"{self._folder}/{name}", b"")

    def _used(self) -> list[str]:
        return sorted(listed.path.rpartition("/")[2] for listed in self._storage.list(self._folder))

    @property
    def _folder(self) -> str:
        return f"{self._context.folder}/ledgers"
