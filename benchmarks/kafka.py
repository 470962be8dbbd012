"""Kafka → tumbling count per key → Kafka, on a real broker: beside Spark Structured Streaming's own Kafka job, and a plain
client.

- `kafka_spark`: events a second of the whole job over a backlog, exactly once, over Spark's (PySpark 4.2 with its connector,
  at least once): two cores each, the same broker, results verified in both.
- `decode`: the source alone, JSON decoded to columns, over confluent-kafka with `json.loads` into dicts on as many processes.
- `latency_p99`: from when an event is sent to when a `read_committed` consumer has what the job made of it, at 1,000 events a
  second, over Spark's.

    python benchmarks/kafka.py --json FILE
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from harness.kafka import Broker, Latency, Load, decoding, latency, windows
from harness.places import fresh_folder
from harness.progress import say
from harness.report import Report
from rich.table import Table


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--events", type=int, default=1_000_000)
    options.add_argument("--seconds", type=float, default=20.0, help="of the latency runs")
    options.add_argument("--runs", type=int, default=1)
    options.add_argument("--only", choices=["windows", "decode", "latency"])
    options.add_argument("--json")
    chosen = options.parse_args()
    report = Report("kafka")
    table = Table("what", "Penstock", "the other", "ratio", title="Kafka")
    with Broker(fresh_folder("kafka", "broker")) as broker:
        load = Load(broker, events=chosen.events)
        if chosen.only in (None, "windows"):
            ours = [windows.penstock(broker, load, report) for _ in range(chosen.runs)]
            by_partition = windows.penstock(broker, load, report, atomic="partition")
            theirs = [windows.spark(broker, load, report) for _ in range(chosen.runs)]
            _row(report, table, "kafka_spark", "count per key in windows, events/s", ours, theirs)
            report.rates["penstock, atomic=partition"] = round(by_partition)
            table.add_row("the same, atomic=partition", f"{by_partition:,.0f}", "", "")
        if chosen.only in (None, "decode"):
            ours = [decoding.penstock(broker, load, report) for _ in range(max(2, chosen.runs))]
            theirs = [decoding.plain(broker, load, report) for _ in range(max(2, chosen.runs))]
            _row(report, table, "decode", "source alone, messages/s", ours, theirs)
        if chosen.only in (None, "latency"):
            mine = latency.penstock(broker, chosen.seconds, report)
            other = latency.spark(broker, chosen.seconds, report)
            _latency(report, table, mine, other)
    say("done")
    return report.finish(table, chosen.json)


def _row(report: Report, table: Table, ratio: str, what: str, ours: list[float], theirs: list[float]) -> None:
    mine, other = statistics.median(ours), statistics.median(theirs)
    report.ratio(ratio, mine, other)
    report.rates[f"{ratio}: penstock"], report.rates[f"{ratio}: other"] = round(mine), round(other)
    table.add_row(what, f"{mine:,.0f}", f"{other:,.0f}", f"{mine / other:.2f}")


def _latency(report: Report, table: Table, mine: Latency, other: Latency) -> None:
    report.ratio("latency_p99", mine.p99, other.p99)
    report.details["latency_ms"] = {"penstock": mine.as_json(), "spark": other.as_json()}
    for name in ("p50", "p99"):
        ours, theirs = getattr(mine, name), getattr(other, name)
        table.add_row(f"event to consumer, {name}, ms", f"{ours:,.0f}", f"{theirs:,.0f}", f"{ours / theirs:.2f}")


if __name__ == "__main__":
    sys.exit(main())
