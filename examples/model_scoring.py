"""A scoring model that is replaced while the job runs; events are scored by the batch, over columns.

The model is broadcast state: all partitions have the same, and a snapshot has it once. A batch ends where a new model comes, so
each event is scored by the model of its time, however the input is cut into epochs.

python examples/model_scoring.py
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import CollectionSource, DataStream, GeneratorSource, StreamEnvironment, Watermarks
from penstock.contexts import ProcessContext
from penstock.functions import BroadcastBatchFunction
from penstock.state import BroadcastMapState

FEATURES = ("amount", "hour")


@dataclass(frozen=True)
class Model:
    """A logistic regression."""

    version: int
    weights: list[float]
    bias: float


@dataclass(frozen=True)
class Control:
    """What the stream of models says: there is a new one, or there is none at this time."""

    time: int
    model: Model | None = None


@dataclass(frozen=True)
class Score:
    number: int
    version: int
    score: float


class Scoring(BroadcastBatchFunction[Control]):
    models: BroadcastMapState[str, Model] = BroadcastMapState(str, Model)

    def map_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        model = self.models.get("current")
        number = batch.column("number")
        if model is None:
            return batch_of(number, 0, np.full(len(number), 0.5))
        features = np.column_stack([batch.column(name).to_numpy() for name in FEATURES])
        return batch_of(number, model.version, 1 / (1 + np.exp(-(features @ np.asarray(model.weights) + model.bias))))

    def process_broadcast(self, value: Control, ctx: ProcessContext) -> None:
        if value.model is not None:
            self.models["current"] = value.model


def batch_of(number: Any, version: int, scores: Any) -> pa.RecordBatch:
    return pa.record_batch({"number": number, "version": np.full(len(number), version), "score": scores})


def payments(numbers: Any) -> pa.RecordBatch:
    """Events by number, one a millisecond."""
    amounts, hours = (numbers * 7919 % 1000).astype(np.float64), (numbers // 100 % 24).astype(np.float64)
    return pa.record_batch({"number": numbers, "time": numbers, "amount": amounts, "hour": hours})


MODELS = {1_000: Model(1, [0.004, -0.05], -1.5), 6_000: Model(2, [0.002, 0.02], -0.8)}


def control(until: int) -> list[Control]:
    return [Control(time, MODELS.get(time)) for time in range(0, until, 100)]


def build(env: StreamEnvironment, count: int) -> DataStream[Score]:
    by_column: Watermarks[Any] = Watermarks.monotonous(timestamp="time")
    by_time: Watermarks[Control] = Watermarks.monotonous(timestamp=lambda one: one.time)
    events = env.from_source(
        GeneratorSource(payments, count=count, partitions=2, vectorised=True), watermarks=by_column, name="payments"
    )
    models = env.from_source(CollectionSource(control(count)), watermarks=by_time, name="models")
    scored: DataStream[Score] = events.connect(models.broadcast()).map_batches(
        Scoring(), schema=Score, aligned=True, name="scores"
    )
    return scored


def main() -> None:
    scores = build(StreamEnvironment("model-scoring"), 10_000).execute_and_collect()
    by_version = Counter(score.version for score in scores)
    for version, count in sorted(by_version.items()):
        mean = sum(score.score for score in scores if score.version == version) / count
        print(f"model {version}: {count} payments, score {mean:.3f} on average")


if __name__ == "__main__":
    main()
