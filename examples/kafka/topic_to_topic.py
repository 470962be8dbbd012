"""From a topic to a topic, exactly once: how much each customer has spent so far. What cannot be read is kept, to be sent again.

PENSTOCK_KAFKA=localhost:9092 python examples/kafka/topic_to_topic.py PURCHASES TOTALS LETTERS

The letters, once their sender is mended: penstock dead-letters replay LETTERS --bootstrap localhost:9092
"""

from __future__ import annotations

import os
import sys

import msgspec

from penstock import FileSink, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.connectors.formats import JsonFormat
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.contexts import KeyedContext


class Purchase(msgspec.Struct):
    customer: str
    cents: int


class Total(msgspec.Struct):
    customer: str
    cents: int


class Spent(KeyedProcessFunction[str, Purchase, Total]):
    so_far = ValueState(int, 0)

    def process(self, value: Purchase, ctx: KeyedContext[str]) -> list[Total]:
        self.so_far.update(self.so_far.value + value.cents)
        return [Total(value.customer, self.so_far.value)]


def build(env: StreamEnvironment, bootstrap: str, purchases: str, totals: str, letters: str) -> None:
    source = KafkaSource(bootstrap, purchases, value=JsonFormat(Purchase), on_bad_record="dead_letter")
    stream = env.from_source(source, name="purchases")
    stream.dead_letters().sink_to(FileSink(letters), name="letters")
    spent = stream.key_by("customer").process(Spent(), name="spent")
    spent.sink_to(KafkaSink(bootstrap, totals, key="customer"), name="totals")


def main() -> None:
    purchases, totals, letters = sys.argv[1:]
    env = StreamEnvironment("totals")
    build(env, os.environ["PENSTOCK_KAFKA"], purchases, totals, letters)
    result = env.execute(until_idle=True)
    print(f"{result.records_in} purchases, {result.dead_letters} not understood")


if __name__ == "__main__":
    main()
