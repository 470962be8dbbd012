"""Vectorised steps: functions of whole Arrow batches, and a key that is a column.

Nothing here makes a Python object of a record until the sum needs one. `docs/concepts/streams-and-state.md` says when that pays.

python examples/enrich.py
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import DataStream, GeneratorSource, StreamEnvironment

COUNTRIES = ["AT", "CH", "DE"]
VAT = pa.array([0.20, 0.081, 0.19])


@dataclass(frozen=True)
class Sale:
    country: str
    gross: float


def sales(numbers: Any) -> pa.RecordBatch:
    """Events by number: the n-th is always the same, so an epoch can be read again."""
    return pa.record_batch({"country_id": pa.array(numbers % 3), "net": pa.array((numbers * 7919 % 1000).astype(np.float64))})


def with_tax(batch: pa.RecordBatch) -> pa.RecordBatch:
    rate = VAT.take(batch.column("country_id"))
    gross = pc.multiply(batch.column("net"), pc.add(rate, 1.0))
    return pa.record_batch({"country": pa.array(COUNTRIES).take(batch.column("country_id")), "gross": gross})


def build(env: StreamEnvironment, count: int) -> DataStream[Sale]:
    source = env.from_source(GeneratorSource(sales, count=count, vectorised=True), name="sales")
    return source.map_batches(with_tax, schema=Sale, name="with-tax").key_by("country").sum("gross", name="totals")


def main() -> None:
    env = StreamEnvironment("enrich")
    totals = build(env, 10_000).execute_and_collect()
    for country, gross in sorted({sale.country: sale.gross for sale in totals}.items()):
        print(f"{country} {gross:14,.2f}")


if __name__ == "__main__":
    main()
