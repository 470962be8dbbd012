"""The Penstock side of `snapshots.py`: jobs with much state, savepoints and restores, and jobs whose storage or sink is slow.

`main` runs what `parameters["job"]` names, in a process of its own.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

import penstock.api.environment
from harness.contenders import progress
from harness.penstock_jobs import environment, history_of
from penstock import EpochRecord, FileSink, GeneratorSource, Job, JobResult, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.connectors.protocol import Committer, CommitterContext
from penstock.ids import Epoch
from penstock.storage import LocalStorage

Parameters = dict[str, Any]
Result = dict[str, Any]

COLUMNS = ("key", "count")
WARM_S = 8
"""Of each job, which do not count: its epochs grow at first."""

VALUE = 84
"""Bytes of text in a value: with its key, counters and framing about 100."""


class Profile(KeyedProcessFunction[int, dict[str, Any], tuple[int, int]]):
    """Per key a count, a sum and a text; a record for each event."""

    profile = ValueState(tuple[int, float, str])

    def process(self, event: dict[str, Any], ctx: Any) -> Iterable[tuple[int, int]]:
        known = self.profile.value
        count, total, text = known if known is not None else (0, 0.0, text_of(ctx.key))
        self.profile.update((count + 1, total + event["v"], text))
        return ((ctx.key, count + 1),)


def text_of(key: int) -> str:
    """A text that is the key's own and compresses about as names and addresses do."""
    return f"{key * 2654435761 % 2**64:016x}-{key * 40503 % 2**32:08x} customer {key:>10}".ljust(VALUE, "·")[:VALUE]


class Keys:
    """Event number → key and value: first every key once, then keys at random, by the number."""

    def __init__(self, keys: int) -> None:
        self.keys = keys

    def __call__(self, numbers: np.ndarray) -> pa.RecordBatch:
        later = numbers >= self.keys
        mixed = (numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(17)
        keys = np.where(later, (mixed % np.uint64(self.keys)).astype(np.int64), numbers)
        return pa.record_batch({"key": pa.array(keys), "v": pa.array(numbers % 1000 / 1000)})


def program(env: StreamEnvironment, parameters: Parameters, events: int | None, sink: FileSink | None = None) -> None:
    source = GeneratorSource(Keys(parameters["keys"]), count=events, vectorised=True)
    output = sink or FileSink(str(Path(parameters["out"], "out")), format="parquet", columns=COLUMNS)
    env.from_source(source, name="in").key_by("key").process(Profile(), name="profile").sink_to(output, name="out")


def main(parameters: Parameters) -> Result:
    return JOBS[parameters["job"]](parameters)


# --- savepoints and restores -----------------------------------------------------------------------------------------------


def load(parameters: Parameters) -> Result:
    """All keys once, then epochs that touch some; what the storage is written meanwhile."""
    keys, touched, epochs = parameters["keys"], parameters["touched"], parameters["epochs"]
    env = environment("state", parameters, max_records_per_epoch=touched, first_records_per_epoch=touched, target_epoch=3600)
    program(env, parameters, keys + touched * epochs)
    written = Written(Path(parameters["out"], "state-storage"), keys)
    result = env.execute(listener=written)
    return {"written": written.total(), "files": written.by_kind, "epochs": result.epochs, "records": result.records_in}


class Written:
    """Sizes of all files that appear in a job's storage once so many records are read, by kind.

    It looks after every epoch, which is before they can go."""

    def __init__(self, folder: Path, after: int) -> None:
        self._folder = folder
        self._left = after
        self._seen: set[str] = set()
        self.by_kind: dict[str, int] = {}

    def __call__(self, record: EpochRecord) -> None:
        if self._left > 0:
            self._left -= record.records_in
            self._seen = set(self._files()) if self._left <= 0 else set()
            return
        for path, size in self._files().items():
            if path not in self._seen:
                self._seen.add(path)
                kind = path.rpartition(".")[2]
                self.by_kind[kind] = self.by_kind.get(kind, 0) + size

    def total(self) -> int:
        return sum(self.by_kind.values())

    def _files(self) -> dict[str, int]:
        found = {}
        for part in ("state", "epochs"):
            for folder, _, names in os.walk(self._folder / part):
                for name in names:
                    try:
                        found[os.path.join(folder, name)] = os.path.getsize(os.path.join(folder, name))
                    except FileNotFoundError:
                        continue
        return {path: size for path, size in found.items() if "/.tmp-" not in path}


def savepoint(parameters: Parameters) -> Result:
    started = time.perf_counter()
    info = Job(parameters["storage"]).savepoint(parameters["to"])
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    size = sum(file.stat().st_size for file in Path(parameters["to"]).rglob("*") if file.is_file())
    rows = sum(file.rows for state in info.states for file in state.files)
    return {"seconds": seconds, "bytes": size, "rows": rows, "peak_kb": peak}


def restore(parameters: Parameters) -> Result:
    """From the call to the first committed epoch that has touched every partition; the session is warm."""
    warm = environment("warm", parameters)
    program(warm, {**parameters, "keys": 1000, "out": parameters["out"] + "/warm"}, 2000)
    warm.execute()
    progress("warm")
    env = environment("restored", parameters, max_records_per_epoch=2000, first_records_per_epoch=2000)
    program(env, parameters, parameters["position"] + 2000)
    committed: list[float] = []
    started = time.perf_counter()
    result = env.execute(restore_from=parameters["savepoint"], listener=lambda record: committed.append(time.perf_counter()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss + _workers_peak_kb()
    entries = max((record.state_entries or 0 for record in result.history), default=0)
    return {"seconds": committed[0] - started, "entries": entries, "peak_kb": peak, "records": result.records_in}


def _workers_peak_kb() -> int:
    """The largest peak among the processes of this session (Spark's Python workers and its JVM come and go with it)."""
    session, most = os.getsid(0), 0
    for process in os.listdir("/proc"):
        if process.isdigit():
            try:
                if os.getsid(int(process)) != session:
                    continue
                with open(f"/proc/{process}/cmdline") as file:
                    if "pyspark" not in file.read():
                        continue
                with open(f"/proc/{process}/status") as file:
                    most = max([most, *(int(line.split()[1]) for line in file if line.startswith("VmHWM"))])
            except (OSError, ProcessLookupError):
                continue
    return most


# --- throughput ------------------------------------------------------------------------------------------------------------


def throughputs(parameters: Parameters) -> Result:
    """Events a second of jobs that differ in their options only, in turns in one warm session: {name: [rate of each round]}."""
    kinds: dict[str, Parameters] = parameters["kinds"]
    _steady("warm", {**parameters, "seconds": parameters["warm_seconds"]})
    progress("warm")
    found: dict[str, list[Result]] = {name: [] for name in kinds}
    for number in range(parameters["rounds"]):
        for name in sorted(kinds, reverse=number % 2 == 1):
            result = _steady(f"{name}-{number}", {**parameters, **kinds[name]})
            found[name].append(result)
            progress(f"{name}: {result['rate']:,.0f} events/s, {result['epochs']} epochs, {result['commits']} commits")
    return {"found": found}


def _steady(name: str, parameters: Parameters) -> Result:
    """Run a job for a while; the rate of what was read between two moments, counted when epochs have run.

    `interval`: seconds between checkpoints; `slow`: what is slow."""
    slow, out = parameters.get("slow", ""), Path(parameters["out"], f"{name}-out")
    fast = penstock.api.environment.open_storage  # type: ignore[attr-defined]
    penstock.api.environment.open_storage = SlowStorage if slow == "storage" else fast  # type: ignore[attr-defined]
    marks: list[tuple[float, int]] = []
    records = 0

    def listen(record: EpochRecord) -> None:
        nonlocal records
        records += record.records_in
        marks.append((record.started_ms / 1000 + record.run_seconds, records))

    try:
        env = environment(name, parameters, checkpoint_interval=parameters.get("interval", 0), target_epoch=1)
        program(env, parameters, None, (SlowSink if slow == "sink" else FileSink)(str(out), format="parquet", columns=COLUMNS))
        stop = threading.Timer(parameters["seconds"] + WARM_S, lambda: Job(Path(parameters["out"], f"{name}-storage")).stop())
        stop.start()
        result = env.execute(listener=listen)
        stop.join()
    finally:
        penstock.api.environment.open_storage = fast  # type: ignore[attr-defined]
        shutil.rmtree(out, ignore_errors=True)
    assert result.records_out == result.records_in, "there is a record for each event"
    begin = next(mark for mark in marks if mark[0] >= marks[0][0] + WARM_S)
    end = marks[-1]
    rate = (end[1] - begin[1]) / (end[0] - begin[0])
    return {"rate": rate, "epochs": result.epochs, "commits": len({r.committed_ms for r in result.history}), "records": records}


class SlowStorage(LocalStorage):
    """A second for every write that is to survive a power cut, or to become visible."""

    def __reduce__(self) -> tuple[object, ...]:
        return (SlowStorage, (self.root,))

    def create(self, path: str, data: bytes, *, durable: bool = True) -> None:
        time.sleep(1.0)
        super().create(path, data, durable=durable)

    @contextmanager
    def writer(self, path: str, *, durable: bool = True) -> Iterator[BinaryIO]:
        time.sleep(1.0)
        with super().writer(path, durable=durable) as file:
            yield file


@dataclass(frozen=True)
class SlowSink(FileSink):
    """A sink whose commit takes 300 ms."""

    def committer(self, context: CommitterContext) -> Committer:
        return SlowCommitter(FileSink.committer(self, context))


class SlowCommitter:
    def __init__(self, inner: Committer) -> None:
        self._inner = inner

    def commit(self, epoch: Epoch, committables: Sequence[Any]) -> None:
        time.sleep(0.3)
        self._inner.commit(epoch, committables)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def during(parameters: Parameters) -> Result:
    """A job at full speed over much state, now with a savepoint under way (made by the command line), now without."""
    out = Path(parameters["out"])
    env = environment("steady", parameters, max_records_per_epoch=100_000, target_epoch=1)
    program(env, parameters, None)
    marks: list[tuple[float, int]] = []
    spans: list[dict[str, Any]] = []
    records = 0
    loaded = threading.Event()

    def listen(record: EpochRecord) -> None:
        nonlocal records
        records += record.records_in
        marks.append((time.time(), records))
        if records >= parameters["keys"] * 2:
            loaded.set()

    def operate() -> None:
        loaded.wait()
        for number in range(parameters["rounds"]):
            spans.append(_span(False, lambda: time.sleep(parameters["pause"])))
            spans.append(_span(True, lambda number=number: _cli_savepoint(out, number)))  # type: ignore[misc]
            progress(f"savepoint {number + 1} took {spans[-1]['seconds']:.1f} s")
        Job(out / "steady-storage").stop()

    operator = threading.Thread(target=operate)
    operator.start()
    result: JobResult = env.execute(listener=listen)
    operator.join()
    for span in spans:
        span["rate"] = _rate(marks, span["from"], span["to"])
    return {"spans": spans, "epochs": result.epochs, "history": len(history_of(result))}


def _span(saving: bool, action: Callable[[], None]) -> dict[str, Any]:
    started = time.time()
    action()
    ended = time.time()
    return {"saving": saving, "from": started, "to": ended, "seconds": ended - started}


def _cli_savepoint(out: Path, number: int) -> None:
    command = "from penstock.cli import main; main()"
    places = ["savepoint", str(out / "steady-storage"), "--to", str(out / f"savepoint-{number}")]
    subprocess.run([sys.executable, "-c", command, *places], check=True, stdout=subprocess.DEVNULL)


def _rate(marks: list[tuple[float, int]], begin: float, end: float) -> float:
    """Events a second between two moments, straight between the commits around them."""
    times, counts = np.array([mark[0] for mark in marks]), np.array([mark[1] for mark in marks])
    first, last = np.interp([begin, end], times, counts)
    return float((last - first) / (end - begin))


JOBS: dict[str, Callable[[Parameters], Result]] = {
    "load": load,
    "savepoint": savepoint,
    "restore": restore,
    "throughputs": throughputs,
    "during": during,
}
