"""Dead letters back to where they came from: as the bytes they were, to their own topic or to another, each once.

What was sent is recorded in the same transaction (`transactions`), under a name made of the place the letters are read from:
asked again, only newer letters are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import islice
from typing import Any

from penstock.connectors.kafka.clients import checked_options, client_library
from penstock.connectors.kafka.transactions import Ledger, Message, kafka_failure
from penstock.connectors.protocol import RejectedRecord
from penstock.errors import ConfigError

AT_ONCE = 10_000
"""Letters of a transaction."""


def replay_dead_letters(
    letters: Iterable[RejectedRecord],
    bootstrap: str,
    *,
    place: str,
    topic: str | None = None,
    options: Mapping[str, str] | None = None,
) -> int:
    """Send letters again; how many were new. `letters` are all that there are at `place`, oldest first, whenever it is
    called; `topic`: where to, if not to the topic that each came from."""
    library = client_library("replay_dead_letters")
    given = checked_options(options or {}, "replay_dead_letters")
    waiting = iter(letters)
    first = next(waiting, None)
    if first is None:
        return 0
    name = f"penstock-letters-{sha256(f'{place}|{topic}'.encode()).hexdigest()[:16]}"
    try:
        ledger = Ledger(bootstrap, given, name=name, topic=topic or _topic_of(first))
        try:
            return _sent(ledger, _chained(first, waiting), topic)
        finally:
            ledger.close()
    except library.KafkaException as error:
        raise kafka_failure("dead letters could not be sent", error, bootstrap, given) from error


def _sent(ledger: Ledger, letters: Iterator[RejectedRecord], topic: str | None) -> int:
    done = ledger.recorded or 0
    total = done
    rest = islice(letters, done, None)
    while run := list(islice(rest, AT_ONCE)):
        total += len(run)
        ledger.send(total, (_message(letter, topic) for letter in run), topic)
    return total - done


def _message(letter: RejectedRecord, topic: str | None) -> Message:
    headers = [(name, value or b"") for name, value in letter.headers]
    return Message(topic or _topic_of(letter), letter.value, letter.key, letter.timestamp_ms, headers or None)


def _topic_of(letter: RejectedRecord) -> str:
    found: Any = letter.position.get("topic")
    if letter.system != "kafka" or not found:
        raise ConfigError(
            f"a dead letter is of {letter.system}, not of a topic of Kafka", hint="say where to send it: --topic, or topic="
        )
    return str(found)


def _chained(first: RejectedRecord, rest: Iterator[RejectedRecord]) -> Iterator[RejectedRecord]:
    yield first
    yield from rest
