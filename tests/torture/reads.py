"""Reads while the job and its server are killed again and again: `python tests/torture/reads.py --kills 20`.

Laws that are checked:
- The epoch of a client's answers never goes back.
- Every value is the one that was committed at its epoch: the count of numbers of that key below the source's position there.
- A subscription that is resumed after each kill tells every change once: applied in order, they are those counts.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from penstock import GeneratorSource, KeyedContext, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.ids import Epoch
from penstock.jobs.listing import epochs_in
from penstock.jobs.manifest import load_manifest
from penstock.query import Client
from penstock.query.errors import QueryError
from penstock.storage import LocalStorage

KEYS = 50
ROOT = Path(__file__).parents[2]
PENSTOCK = [sys.executable, "-c", "from penstock.cli import main; main()"]


class Counts(KeyedProcessFunction[int, int, int]):
    seen = ValueState(int, default=0, queryable=True)

    def process(self, value: int, ctx: KeyedContext[int]) -> Iterator[int]:
        self.seen.update(self.seen.value + 1)
        yield from ()


def key_of(number: int) -> int:
    return number * 7919 % KEYS


def job(folder: str) -> None:
    env = StreamEnvironment(
        "counts",
        executor="inline",
        parallelism=2,
        storage=f"{folder}/storage",
        local_dir=f"{folder}/local",
        keep=1_000_000,
        compact_after=6,
        max_parallelism=16,
    )
    numbers = env.from_source(GeneratorSource(int, rate=2000.0, partitions=2), name="numbers")
    numbers.key_by(key_of, key_type=int).process(Counts(), name="counts").print()
    env.execute()


class Processes:
    """The job and its server, started again when they are killed."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        self._commands = {
            "job": [sys.executable, str(Path(__file__)), "--job", str(folder)],
            "server": [*PENSTOCK, "serve", str(folder), "--port", str(port), "--local-dir", f"{folder}/local"],
        }
        self._environment = environment
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        log = (self._folder / f"{name}.log").open("ab")
        self._running[name] = subprocess.Popen(self._commands[name], env=self._environment, stdout=log, stderr=log, cwd=ROOT)
        log.close()

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for name in list(self._running):
            self.kill(name)


@dataclass
class Seen:
    """What clients were told."""

    answers: list[tuple[int, int, int]] = field(default_factory=list)
    """Epoch, key, value."""
    problems: list[str] = field(default_factory=list)
    events: int = 0
    epochs: set[int] = field(default_factory=set)


class Oracle:
    """The counts at an epoch, from the position of the source there and nothing else."""

    def __init__(self, folder: Path) -> None:
        self._storage = LocalStorage(str(folder / "storage"))
        self.position = cache(self._position)
        self.counts = cache(self._counts)

    def _position(self, epoch: int) -> int:
        return int(load_manifest(self._storage, Epoch(epoch)).sources["numbers"].position["next"])

    def _counts(self, epoch: int) -> dict[int, int]:
        whole, rest = divmod(self.position(epoch), KEYS)
        found = dict.fromkeys(range(KEYS), whole)
        for number in range(rest):
            found[key_of(number)] += 1
        return found


def read(url: str, rate: float, until: threading.Event, seen: Seen, seed: int) -> None:
    chosen = random.Random(seed)
    last = 0
    began, sent = time.monotonic(), 0
    with Client(url, retry_s=60) as client:
        while not until.is_set():
            key = chosen.randrange(KEYS)
            try:
                found = client.get("counts", "counts", "seen", key, Counts.seen)
            except QueryError as error:
                if not until.is_set():
                    seen.problems.append(str(error))
                continue
            if found.epoch < last:
                seen.problems.append(f"the epoch went back from {last} to {found.epoch}")
            last = found.epoch
            seen.answers.append((found.epoch, key, found.value))
            seen.epochs.add(found.epoch)
            sent += 1
            time.sleep(max(0.0, began + sent / rate - time.monotonic()))


def subscribe(url: str, until: threading.Event, seen: Seen, oracle: Oracle) -> None:
    """Events are applied to what is known at the epoch that they begin behind."""
    state: dict[int, int] = {}
    epoch = 0
    with Client(url) as client:
        for event in client.subscribe("counts", "counts", "seen"):
            if until.is_set():
                return
            if event.kind not in ("change", "epoch"):
                seen.problems.append(f"the subscription was told {event.kind}: {event.data}")
                return
            if not epoch:
                epoch, state = event.epoch, dict(oracle.counts(event.epoch))
                continue
            if event.data["after"] != epoch:
                seen.problems.append(f"an event begins behind {event.data['after']}, the one before was of {epoch}")
                return
            for row in event.data.get("changes", ()):
                state[row["key"]] = row["value"]
            if not event.data.get("more"):
                epoch = event.epoch
                seen.events += 1
                if {key: n for key, n in state.items() if n} != {key: n for key, n in oracle.counts(epoch).items() if n}:
                    seen.problems.append(f"what was told until epoch {epoch} is not what was committed")
                    return


def campaign(folder: Path, *, kills: int, rate: float, seed: int, pause_s: float, port: int) -> Seen:
    """Kill one of the two, or both, again and again; what clients saw, with what was wrong."""
    folder.mkdir(exist_ok=True)
    processes, seen, oracle, until = Processes(folder, port), Seen(), Oracle(folder), threading.Event()
    chosen = random.Random(seed)
    url = f"http://127.0.0.1:{port}"
    threads = [threading.Thread(target=read, args=(url, rate / 2, until, seen, seed + n), daemon=True) for n in range(2)]
    threads.append(threading.Thread(target=subscribe, args=(url, until, seen, oracle), daemon=True))
    try:
        processes.start("job")
        while not (folder / "storage" / "epochs").exists() or not epochs_in(LocalStorage(str(folder / "storage"))).published:
            time.sleep(0.05)
        processes.start("server")
        for thread in threads:
            thread.start()
        for _ in range(kills):
            answered = len(seen.answers)
            while len(seen.answers) < answered + 20 and not seen.problems:
                time.sleep(0.05)
            time.sleep(chosen.uniform(0, pause_s))
            victims = chosen.choice((["job"], ["server"], ["job", "server"]))
            for name in victims:
                processes.kill(name)
            for name in victims:
                processes.start(name)
        told = seen.events
        deadline = time.monotonic() + 60
        while seen.events < told + 2 and not seen.problems and time.monotonic() < deadline:
            time.sleep(0.1)
        until.set()
        for thread in threads:
            thread.join(10)
    finally:
        until.set()
        processes.stop()
    for epoch, key, value in seen.answers:
        if oracle.counts(epoch)[key] != value:
            seen.problems.append(f"key {key} was {value} at epoch {epoch}, and not {oracle.counts(epoch)[key]}")
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--rate", type=float, default=1000.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, default=0)
    given = parser.parse_args()
    if given.job:
        job(given.job)
        return
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"kills": given.kills, "rate": given.rate, "seed": given.seed, "pause_s": 3.0}
        seen = campaign(Path(folder), port=given.port or free_port(), **options)
    print(f"{given.kills} kills: {len(seen.answers)} answers of {len(seen.epochs)} epochs, {seen.events} events")
    for problem in seen.problems:
        print(problem)
    sys.exit(bool(seen.problems))


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


if __name__ == "__main__":
    main()
