"""Expressions beside the same step as a Python function: rows a second through the operator, one core, nothing else.

A filter and a select with arithmetic, a string function and a choice, over 2M rows: as Arrow columns (what Parquet gives) and as
Python dicts (what JSON gives). Results are compared before anything is timed; of five rounds in turn the median counts.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
from harness.report import Report, parser_of, table_of

from penstock import StreamEnvironment, col, when
from penstock.ids import MIN_WATERMARK, StepId
from penstock.records import DICT_ROW, Batch, Columns, Records
from penstock.runtime.operators.operator import Operator

ROUNDS = 5
BATCH = 65_536


def table(rows: int) -> pa.Table:
    random = np.random.default_rng(7)
    return pa.table(
        {
            "user": pa.array([f"user-{number}" for number in random.integers(0, 1000, rows)]),
            "price": random.random(rows) * 100,
            "n": random.integers(1, 10, rows),
        }
    )


def by_expressions(stream: Any) -> Any:
    large = when(col("price") > 50).then("large").otherwise("small")
    return stream.filter((col("n") > 2) & (col("price") > 10)).select(
        user=col("user").upper(), total=col("price") * col("n"), size=large
    )


def by_functions(stream: Any) -> Any:
    return stream.filter(lambda r: r["n"] > 2 and r["price"] > 10).map(
        lambda r: {"user": r["user"].upper(), "total": r["price"] * r["n"], "size": "large" if r["price"] > 50 else "small"}
    )


class Chain:
    """The steps of a program, called one after another; keeps what comes out."""

    def __init__(self, program: Callable[[Any], Any]) -> None:
        env = StreamEnvironment("bench", executor="inline")
        program(env.from_collection([{"user": "a", "price": 1.0, "n": 1}]))
        definitions = [node.definition for node in env.graph][1:]
        services: Any = SimpleNamespace(start_watermark=lambda step: MIN_WATERMARK, opened=lambda step, function: function)
        self._operators: list[Operator] = [definition.build(StepId("bench"), services, 1) for definition in definitions]
        self.out: list[Batch] = []
        for before, after in zip(self._operators, self._operators[1:], strict=False):
            before.outputs.main[:] = [after]
        self._operators[-1].outputs.main[:] = [self]

    def on_batch(self, batch: Batch) -> None:
        self.out.append(batch)

    def on_watermark(self, watermark: Any) -> None:
        """Time does not matter here."""

    def run(self, batches: list[Batch]) -> float:
        self.out = []
        begin = time.perf_counter()
        for batch in batches:
            self._operators[0].on_batch(batch)
        return time.perf_counter() - begin


def batches_of(data: pa.Table, form: str) -> list[Batch]:
    columns = [Columns(part, DICT_ROW) for part in data.to_batches(BATCH)]
    return [Records(part.values()) for part in columns] if form == "dicts" else list(columns)


def measured(rows: int, form: str, report: Report) -> dict[str, float]:
    """Rows a second by each; what they give is compared first."""
    data = table(rows)
    chains = {"expressions": Chain(by_expressions), "functions": Chain(by_functions)}
    results = {}
    for name, chain in chains.items():
        chain.run(batches_of(data.slice(0, BATCH), form))
        results[name] = [value for batch in chain.out for value in batch.values()]
    if results["expressions"] != results["functions"]:
        report.problems.append(f"{form}: expressions and functions do not give the same rows")
    seconds: dict[str, list[float]] = {name: [] for name in chains}
    for _ in range(ROUNDS):
        for name, chain in chains.items():
            seconds[name].append(chain.run(batches_of(data, form)))
            chain.out = []
    return {name: rows / statistics.median(times) for name, times in seconds.items()}


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    given = parser.parse_args()
    report = Report("expressions")
    lines = []
    for form in ("columns", "dicts"):
        rates = measured(given.rows, form, report)
        report.rates.update({f"{form}_{name}": round(rate) for name, rate in rates.items()})
        report.ratio(form, rates["expressions"], rates["functions"])
        lines.append((form, f"{rates['expressions']:,.0f}", f"{rates['functions']:,.0f}", f"{report.ratios[form]:.2f} ×"))
    shown = table_of("filter and select, rows/s, one core", ("rows as", "expressions", "functions", "ratio"), lines)
    return report.finish(shown, given.json)


if __name__ == "__main__":
    sys.exit(main())
