"""Kafka: topics as a source and as a sink, exactly once.

- `source`: the definition; `enumerator` plans offsets on the driver, by way of `cluster` (look-ups) and `position`; `reader`
  reads them in the worker, by way of `consumers`.
- `sink`: the definition; `writer` encodes and stages in the worker, `committer` sends in transactions from the driver.
- `clients`: how clients are made, with secrets looked up; `errors`: what Kafka says, as errors of ours.
"""

from penstock.connectors.kafka.letters import replay_dead_letters
from penstock.connectors.kafka.sink import KafkaSink
from penstock.connectors.kafka.source import KafkaSource

__all__ = ["KafkaSink", "KafkaSource", "replay_dead_letters"]
