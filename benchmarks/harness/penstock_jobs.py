"""The Penstock contenders: all that the benchmarks know of Penstock's API.

`main` runs the job that `parameters["job"]` names. Jobs run on one Spark session, made by Penstock itself, so that a job can be
warmed up by a small one before it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from harness.contenders import progress
from harness.processes import Sampler
from penstock import (
    EpochRecord,
    FileSink,
    FileSource,
    GeneratorSource,
    JobResult,
    KeyedProcessFunction,
    StreamEnvironment,
    ValueState,
)
from penstock.executors.spark.session import make_session

Parameters = dict[str, Any]
Result = dict[str, Any]

COLUMNS = ("key", "count", "sum")


class CountAndSum(KeyedProcessFunction[int, dict[str, Any], tuple[int, int, float]]):
    """Per key the count and the sum of its values; a record for each event."""

    total = ValueState(tuple[int, float], default=(0, 0.0))

    def process(self, event: dict[str, Any], ctx: Any) -> Iterable[tuple[int, int, float]]:
        count, total = self.total.value
        count += 1
        total += event["v"]
        self.total.update((count, total))
        return ((ctx.key, count, total),)


class Count(KeyedProcessFunction[int, dict[str, int], dict[str, int]]):
    """Per key the count; a record for each event, with its number."""

    count = ValueState(int, default=0)

    def process(self, event: dict[str, int], ctx: Any) -> Iterable[dict[str, int]]:
        count = self.count.value + 1
        self.count.update(count)
        return ({"key": ctx.key, "count": count, "n": event["n"]},)


def main(parameters: Parameters) -> Result:
    return JOBS[parameters["job"]](parameters)


def environment(name: str, parameters: Parameters, **settings: Any) -> StreamEnvironment:
    """A program on this process's session, with its storage and output in the run's folder."""
    parallelism = parameters.get("parallelism", 2)
    master = f"local[{parallelism},4]"
    session = make_session("benchmark", master, {"spark.driver.memory": "2g"})
    storage = str(Path(parameters["out"], f"{name}-storage"))
    return StreamEnvironment(name, spark=session, storage=storage, parallelism=parallelism, master=master, **settings)


def history_of(result: JobResult) -> list[dict[str, Any]]:
    """The epochs that read something."""
    return [
        {
            "epoch": int(record.epoch),
            "started_ms": record.started_ms,
            "committed_ms": record.committed_ms,
            "seconds": record.seconds,
            "records": record.records_in,
        }
        for record in result.history
        if record.records_in
    ]


# --- keyed_process ---------------------------------------------------------------------------------------------------------


def keyed_process(parameters: Parameters) -> Result:
    _keyed_process("warm", parameters["warm_folder"], parameters, 10_000)
    progress("warm")
    history = _keyed_process("out", parameters["folder"], parameters, -(-parameters["events"] // parameters["epochs"]))
    return {
        "events": sum(epoch["records"] for epoch in history),
        "seconds": (history[-1]["committed_ms"] - history[0]["started_ms"]) / 1000,
        "epochs": [epoch["records"] for epoch in history],
        "epoch_seconds": [round(epoch["seconds"], 3) for epoch in history],
    }


def _keyed_process(name: str, folder: str, parameters: Parameters, records: int) -> list[dict[str, Any]]:
    env = environment(
        name,
        parameters,
        max_records_per_epoch=records,
        first_records_per_epoch=records,
        target_epoch=parameters["target_epoch"],
    )
    events = env.from_source(FileSource(f"{folder}/*.parquet", columns=["key", "v"]), name="in")
    keyed = events.key_by(lambda event: event["key"]) if parameters["by_function"] else events.key_by("key")
    output = FileSink(str(Path(parameters["out"], name)), format="parquet", columns=COLUMNS)
    keyed.process(CountAndSum(), name="count").sink_to(output, name="out")
    return history_of(env.execute())


# --- state_size ------------------------------------------------------------------------------------------------------------


def state_size(parameters: Parameters) -> Result:
    """Loads in epochs of `touched` events, key after key, then touches as many keys in each epoch, at random."""
    touched, load = parameters["touched"], parameters["load"]
    events = load + touched * parameters["epochs"]
    env = environment("state", parameters, max_records_per_epoch=touched, target_epoch=3600)
    source = GeneratorSource(Touches(parameters["keys"], load, touched), count=events, vectorised=True)
    output = FileSink(str(Path(parameters["out"], "out")), format="parquet", columns=COLUMNS)
    env.from_source(source, name="in").key_by("key").process(CountAndSum(), name="count").sink_to(output, name="out")
    return {"history": history_of(env.execute(listener=_every(25, events)))}


class Touches:
    """Event number → key and value. Below `load`: all keys in turn; then every `touched` events have different, random keys."""

    def __init__(self, keys: int, load: int, touched: int) -> None:
        self.keys = keys
        self.load = load
        self.touched = touched

    def __call__(self, numbers: np.ndarray) -> pa.RecordBatch:
        keys = numbers % self.keys
        later = numbers >= self.load
        rounds, places = np.divmod(numbers - self.load, self.touched)
        for number in np.unique(rounds[later]).tolist():
            chosen = np.random.default_rng(number).choice(self.keys, self.touched, replace=False, shuffle=False)
            here = later & (rounds == number)
            keys[here] = chosen[places[here]]
        return pa.record_batch({"key": pa.array(keys), "v": pa.array(numbers % 1000 / 1000)})


# --- latency ---------------------------------------------------------------------------------------------------------------


def latency(parameters: Parameters) -> Result:
    rate, seconds, keys = parameters["rate"], parameters["warm_seconds"] + parameters["seconds"], parameters["keys"]
    env = environment("latency", parameters)
    source = GeneratorSource(Numbered(keys), count=rate * seconds, rate=rate)
    output = FileSink(str(Path(parameters["out"], "out")), format="json")
    env.from_source(source, name="in").key_by("key").process(Count(), name="count").sink_to(output, name="out")
    history = history_of(env.execute(listener=_every(100, rate * seconds)))
    return {"history": history, "start_ms": _start_ms(Path(parameters["out"], "latency-storage"))}


class Numbered:
    """Event number → key and number."""

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def __call__(self, number: int) -> dict[str, int]:
        return {"key": number * 7919 % self.keys, "n": number}


def _start_ms(storage: Path) -> int:
    """When the generator began, from the last manifest's source position: event n is due (n + 1) / rate seconds later."""
    for path in sorted(storage.rglob("*.json"), reverse=True):
        found = _find(json.loads(path.read_bytes()), "start_ms")
        if found is not None:
            return int(found)
    raise LookupError(f"no generator position below {storage}")


def _find(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        if name in value:
            return value[name]
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            if (found := _find(each, name)) is not None:
                return found
    return None


# --- tiny epochs: the floor, and the soak ------------------------------------------------------------------------------------


def tiny_epochs(parameters: Parameters) -> Result:
    """As many epochs as asked, each of a few events, one after another."""
    records, epochs = parameters["records"], parameters["epochs"]
    env = environment("tiny", parameters, max_records_per_epoch=records, target_epoch=3600)
    source = GeneratorSource(Numbered(parameters["keys"]), count=records * epochs)
    output = FileSink(str(Path(parameters["out"], "out")), format="json")
    env.from_source(source, name="in").key_by("key").process(Count(), name="count").sink_to(output, name="out")
    started = time.time()
    with Sampler(Path(parameters["out"], "spark-local"), every=parameters.get("sample_seconds")) as sampler:
        told = _every(max(100, epochs // 20), records * epochs)
        heaps: dict[int, int] = {}
        done = 0

        def listen(record: EpochRecord) -> None:
            nonlocal done
            done += 1
            sampler.mark = done
            told(record)
            if done in parameters.get("collect_at", ()):
                heaps[done] = _live_heap()

        result = env.execute(listener=listen)
    return {"history": history_of(result), "samples": sampler.samples, "wall_seconds": time.time() - started, "live_heap": heaps}


def _live_heap() -> int:
    """What is left in the JVM's heap, in bytes, after garbage collection."""
    jvm = SparkSession.builder.getOrCreate().sparkContext._jvm
    assert jvm is not None
    jvm.java.lang.System.gc()
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    return int(runtime.totalMemory() - runtime.freeMemory())


def _every(epochs: int, events: int) -> Callable[[EpochRecord], None]:
    """Says how far the job is, now and then."""
    seen = [0, 0]

    def listen(record: EpochRecord) -> None:
        seen[0] += 1
        seen[1] += record.records_in
        if seen[0] % epochs == 0:
            progress(f"epoch {seen[0]}, {seen[1]:,} of {events:,} events, the last in {record.seconds * 1000:.0f} ms")

    return listen


JOBS: dict[str, Callable[[Parameters], Result]] = {
    "keyed_process": keyed_process,
    "state_size": state_size,
    "latency": latency,
    "tiny_epochs": tiny_epochs,
}
