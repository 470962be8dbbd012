"""State that is queried while it changes: what a job pays for it, and what a get takes.

Counts by key over `--keys` keys, `--rate` events a second, on Spark. A server beside it is asked for keys, `--gets` a second.

- sustained: events committed over events offered, while it is queried;
- commit_p99: from when the last event of an epoch was due to its manifest, over the same without queries;
- http p99: of gets while the job runs, and of the same server with the job stopped;
- replica_lag: from a manifest to the replica's first answer of that epoch, p99 in ms, and in commits;
- embedded: gets a second of the reader without HTTP over those of bare LMDB in Python, one thread, the same keys: `txn.get`
  in one transaction, of store keys that are made beforehand, without decoding what is found;
- windowed: gets a second of a key's windows that are kept over columns, embedded: apart, for each looks through a key group.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pyarrow as pa
from harness.places import fresh_folder
from harness.progress import say
from harness.report import Report, parser_of, table_of

from penstock import GeneratorSource, StreamEnvironment, TumblingWindows, ValueState, Watermarks, count
from penstock.ids import Epoch
from penstock.jobs.manifest import load_manifest
from penstock.query.embedded import EmbeddedReader
from penstock.state.entries.store_keys import value_prefix
from penstock.storage import LocalStorage
from penstock.testing import Cut, ScriptedSource
from penstock.testing.running import execute_inline

HERE = Path(__file__).parent
PENSTOCK = [sys.executable, "-c", "from penstock.cli import main; main()"]


def run_job(folder: str, keys: int, rate: float, executor: str) -> None:
    """Event n is of key n * p % keys, with a p that visits all of them."""

    def events(numbers: Any) -> pa.RecordBatch:
        return pa.record_batch({"key": (np.asarray(numbers) * 7919) % keys, "n": np.ones(len(numbers), dtype=np.int64)})

    env = StreamEnvironment(
        "counts", executor=executor, parallelism=2, storage=f"{folder}/storage", local_dir=f"{folder}/local", keep=500
    )
    stream = env.from_source(GeneratorSource(events, rate=rate, vectorised=True), name="events")
    sums = stream.key_by("key").sum("n", name="counts", state_type=ValueState(int, queryable=True))
    sums.filter(lambda row: False, name="none").print()
    env.execute()


class Commits:
    """Each epoch's manifest: when it was there, and up to which event it reads."""

    def __init__(self, folder: Path, rate: float) -> None:
        self._storage = LocalStorage(str(folder / "storage"))
        self._epochs = folder / "storage" / "epochs"
        self._rate = rate

    def between(self, start: float, end: float) -> list[tuple[int, float, int, float]]:
        """Epoch, when, position, and how late: seconds."""
        found = []
        for path in sorted(self._epochs.glob("*.json")):
            at = path.stat().st_mtime
            if start <= at <= end:
                position = load_manifest(self._storage, Epoch(int(path.stem))).sources["events"].position
                due = position["start_ms"] / 1000 + position["next"] / self._rate
                found.append((int(path.stem), at, int(position["next"]), at - due))
        return found


def p99(values: list[float]) -> float:
    return float(np.percentile(values, 99)) if values else float("nan")


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=50_000, help="events a second")
    parser.add_argument("--gets", type=int, default=1_000, help="gets a second")
    parser.add_argument("--seconds", type=int, default=30, help="of each measurement")
    parser.add_argument("--warm-seconds", type=int, default=45)
    parser.add_argument("--executor", default="spark", choices=("spark", "inline"))
    parser.add_argument("--job", help="run the job, in this folder")
    given = parser.parse_args()
    if given.job:
        run_job(given.job, given.keys, given.rate, given.executor)
        return 0
    report = Report("query")
    folder = Path(fresh_folder("query"))
    options = ["--keys", str(given.keys), "--rate", str(given.rate), "--executor", given.executor]
    commits = Commits(folder, given.rate)
    running: list[subprocess.Popen[bytes]] = []
    log = (folder / "processes.log").open("wb")

    def start(*command: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, cwd=HERE)
        running.append(process)
        return process

    def serve(*more: str) -> str:
        process = start(*PENSTOCK, "serve", str(folder / "storage"), "--port", "0", *more)
        assert process.stdout is not None
        return process.stdout.readline().decode().split()[-1]

    def gets(url: str) -> dict[str, float]:
        path = f"{url}/api/v1/jobs/counts/steps/counts/state/result/"
        command = [sys.executable, "-m", "harness.http_load", path, str(given.keys), str(given.gets), str(given.seconds), "8"]
        process = start(*command)
        out, _ = process.communicate()
        return dict(json.loads(out))

    try:
        job = start(sys.executable, str(HERE / "query.py"), "--job", str(folder), *options)
        say(f"the job is getting warm, {given.warm_seconds} s")
        while not list((folder / "storage" / "epochs").glob("*.done")) and job.poll() is None:
            time.sleep(0.2)
        time.sleep(given.warm_seconds)
        say("without queries")
        began = time.time()
        time.sleep(given.seconds)
        alone = commits.between(began, time.time())
        say("with queries")
        local = ("--local-dir", str(folder / "local"))
        url = serve(*local)
        gets_began = time.time()
        asked = gets(url)
        beside = commits.between(gets_began + 2, time.time())
        say("with a replica")
        replica = serve("--replica", "--local-dir", str(folder / "replica"))
        time.sleep(8)
        answered = Answered(replica)
        answered.start()
        began = time.time()
        time.sleep(given.seconds)
        answered.stop()
        followed = commits.between(began, time.time())
        say("with the job stopped")
        job.send_signal(signal.SIGKILL)  # so that its local state stays
        job.wait()
        time.sleep(2)
        still = gets(url)
        bare, embedded = embedded_gets(folder, given.keys)
    finally:
        for process in running:
            if process.poll() is None:
                process.terminate()
        for process in running:
            process.wait(20)
    offered = (beside[-1][1] - beside[0][1]) * given.rate
    report.ratio("sustained", beside[-1][2] - beside[0][2], offered)
    without, with_queries = p99([late for *_, late in alone]), p99([late for *_, late in beside])
    report.ratio("commit_p99", with_queries, without)
    report.ratio("embedded", embedded, bare)
    lags, behind = answered.lags(followed)
    windowed = windowed_gets(folder)
    report.rates = {"embedded": round(embedded), "bare_lmdb": round(bare), "windowed": round(windowed)}
    report.details = {
        "commit_p99_ms": {"alone": without * 1000, "queried": with_queries * 1000},
        "http_ms": {"job_running": asked, "job_stopped": still},
        "replica_lag_ms_p99": p99(lags) * 1000,
        "replica_lag_commits_p99": p99(behind),
        "epochs": {"alone": len(alone), "queried": len(beside)},
    }
    report.ratios["replica_lag_s"] = round(p99(lags), 3)
    if asked["wrong"] or still["wrong"]:
        report.problems.append(f"{asked['wrong']:.0f} and {still['wrong']:.0f} gets had no value")
    rows = [
        ["commit p99, alone / queried", f"{without * 1000:,.0f} / {with_queries * 1000:,.0f} ms"],
        ["HTTP get p50 / p99, job runs", f"{asked['p50']:.1f} / {asked['p99']:.1f} ms at {asked['rate']:,.0f}/s"],
        ["HTTP get p50 / p99, job stopped", f"{still['p50']:.1f} / {still['p99']:.1f} ms at {still['rate']:,.0f}/s"],
        ["embedded / bare LMDB", f"{embedded:,.0f} / {bare:,.0f} gets/s"],
        ["windows over columns, embedded", f"{windowed:,.0f} gets/s"],
        ["replica lag p99", f"{p99(lags) * 1000:,.0f} ms, {p99(behind):.0f} commits"],
    ]
    return report.finish(table_of(f"{given.keys:,} keys, {given.rate:,} events/s", ["", "found"], rows), given.json)


class Answered(threading.Thread):
    """When a server first answered with each epoch."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = f"{url}/api/v1/jobs/counts"
        self._ended = False
        self._first: dict[int, float] = {}

    def run(self) -> None:
        while not self._ended:
            with urllib.request.urlopen(self._url, timeout=10) as answer:
                epoch = json.load(answer)["epoch"]
            if epoch is not None:
                self._first.setdefault(epoch, time.time())
            time.sleep(0.01)

    def stop(self) -> None:
        self._ended = True
        self.join()

    def lags(self, commits: list[tuple[int, float, int, float]]) -> tuple[list[float], list[float]]:
        """Of each epoch: seconds from its manifest to the first answer of it or a later one; commits that came meanwhile."""
        seen = sorted(self._first.items())
        lags, behind = [], []
        for epoch, at, *_ in commits:
            told = next((when for one, when in seen if one >= epoch), None)
            if told is not None and seen[0][0] < epoch:
                lags.append(max(0.0, told - at))
                behind.append(float(sum(at < other < told for _, other, *_ in commits)))
        return lags, behind


def embedded_gets(folder: Path, keys: int, number: int = 300_000) -> tuple[float, float]:
    """Gets a second: of bare LMDB, and embedded."""
    chosen = random.Random(3)
    wanted = [chosen.randrange(keys) for _ in range(number)]
    with EmbeddedReader(folder / "storage", local_dir=str(folder / "local")) as reader:
        get = reader.values("counts", "result", ValueState(int))
        assert all(get(key) for key in wanted[:1000])
        assert get.reading is not None
        layout, state = get.reading.manifest.state, get.state_number
        embedded = best(get, wanted)
        store_keys = [(layout.key_groups.of(encoded), encoded) for encoded in map(get.encode, wanted)]
        get.close()
    stores = []
    stage = next(stage for stage, numbers in enumerate(layout.stages) if state in numbers)
    for partition in range(layout.parallelism):
        (place,) = (folder / "local").glob(f"*/*/[!r]*-p{layout.parallelism}-lmdb/{stage}-{partition}/current")
        stores.append(lmdb.open(str(place.parent / place.read_text()), readonly=True, max_readers=512, map_size=16 << 30))
    gets = [store.begin().get for store in stores]
    count_of = layout.max_parallelism
    prepared = [
        (gets[group * layout.parallelism // count_of], value_prefix(group, state) + encoded) for group, encoded in store_keys
    ]
    return best(lambda one: one[0](one[1]), prepared, bare=True), embedded


def best(get: Callable[[Any], Any], wanted: list[Any], *, bare: bool = False) -> float:
    """The best of three rounds, a second."""
    rates = []
    for _ in range(3):
        began = time.perf_counter()
        if bare:
            for lookup, key in wanted:
                lookup(key)
        else:
            for key in wanted:
                get(key)
        rates.append(len(wanted) / (time.perf_counter() - began))
    return max(rates)


def windowed_gets(folder: Path, keys: int = 100_000, number: int = 300) -> float:
    """Of a key's open windows, kept over columns."""
    env = StreamEnvironment("windows", parallelism=2)
    made = [{"key": n, "time": n // 100} for n in range(keys)]
    rows = env.from_source(
        ScriptedSource([*made, Cut(), {"key": 0, "time": 1}]), watermarks=Watermarks.monotonous(timestamp="time")
    )
    rows.key_by("key").window(TumblingWindows(hours=1)).aggregate(count(), name="hourly").print()
    execute_inline(env, storage=str(folder / "windows"), epochs=2)
    with EmbeddedReader(folder / "windows") as reader:
        began = time.perf_counter()
        for key in range(number):
            reader.get("hourly", "slices", key)
        return number / (time.perf_counter() - began)


if __name__ == "__main__":
    sys.exit(main())
