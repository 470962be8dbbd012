"""The tortured program: a topic → a count and a sum for each key → a topic. It runs until it is killed."""

from __future__ import annotations

import argparse
import logging
from typing import Any

from penstock import KeyedProcessFunction, RestartPolicy, StreamEnvironment, ValueState
from penstock.connectors.formats import JsonFormat
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.contexts import KeyedContext


class Counted(KeyedProcessFunction[str, dict[str, Any], dict[str, Any]]):
    count = ValueState(int, 0)
    total = ValueState(int, 0)

    def process(self, value: dict[str, Any], ctx: KeyedContext[str]) -> list[dict[str, Any]]:
        self.count.update(self.count.value + 1)
        self.total.update(self.total.value + value["n"])
        return [{"key": value["key"], "count": self.count.value, "total": self.total.value}]


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("storage", "bootstrap", "source", "target", "master", "atomic"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    env = StreamEnvironment(
        "counted",
        storage=given.storage,
        master=given.master,
        parallelism=2,
        keep=4,
        compact_after=4,
        max_records_per_epoch=500,
        restart=RestartPolicy(attempts=20, first_delay=0.05),
        spark_config={
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.stage.maxConsecutiveAttempts": "8",
        },
    )
    messages = env.from_source(KafkaSource(given.bootstrap, given.source, value=JsonFormat(), patience=20.0), name="in")
    counted = messages.key_by("key").process(Counted(), name="counted")
    counted.sink_to(KafkaSink(given.bootstrap, given.target, key="key", atomic=given.atomic), name="out")
    env.execute()


if __name__ == "__main__":
    main()
