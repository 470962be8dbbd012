"""Kill a job with SIGKILL, start it again, and count.

This program starts the job as a process of its own, kills it in the middle without a warning, and starts it again with the same
storage. The second process finds what the first had committed and goes on from there: every count appears exactly once.

python examples/kill_and_resume.py
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator

from penstock import FileSink, GeneratorSource, KeyedContext, KeyedProcessFunction, StreamEnvironment, ValueState, read_output

EVENTS, KEYS = 20_000, 10


class Count(KeyedProcessFunction[int, int, dict[str, int]]):
    count = ValueState(int, default=0)

    def process(self, value: int, ctx: KeyedContext[int]) -> Iterator[dict[str, int]]:
        self.count.update(self.count.value + 1)
        yield {"key": ctx.key, "count": self.count.value}


def build(env: StreamEnvironment, out: str) -> None:
    # 10,000 a second in small epochs, so that there is a middle to be killed in.
    source = GeneratorSource(lambda n: n, count=EVENTS, rate=10_000)
    counts = env.from_source(source, name="events").key_by(lambda n: n % KEYS, key_type=int).process(Count(), name="count")
    counts.sink_to(FileSink(out), name="out")


def job(folder: str, executor: str) -> None:
    env = StreamEnvironment(
        "kill-and-resume", storage=f"{folder}/job", executor=executor, parallelism=2, max_records_per_epoch=2000
    )
    build(env, f"{folder}/out")
    env.execute()


def start(folder: str, executor: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), "--job", folder, executor])


def published(folder: str) -> list[int]:
    """The epochs that have published something so far."""
    return read_output(f"{folder}/out").epochs if os.path.isdir(f"{folder}/out/_log") else []


def main() -> None:
    if sys.argv[1:2] == ["--job"]:
        job(*sys.argv[2:4])
        return
    executor = StreamEnvironment("kill-and-resume").config.executor  # "spark", unless the command line says otherwise
    with tempfile.TemporaryDirectory() as folder:
        first = start(folder, executor)
        while len(published(folder)) < 2 and first.poll() is None:
            time.sleep(0.05)
        first.send_signal(signal.SIGKILL)
        first.wait()
        before = read_output(f"{folder}/out")
        print(f"killed after {len(before)} of {EVENTS} counts, in {len(published(folder))} epochs")

        second = start(folder, executor)
        if second.wait() != 0:
            raise SystemExit("the second run failed")
        rows = read_output(f"{folder}/out")
        seen = Counter((row["key"], row["count"]) for row in rows)
        wanted = {(key, count) for key in range(KEYS) for count in range(1, EVENTS // KEYS + 1)}
        lost, repeated = len(wanted - seen.keys()), sum(n - 1 for n in seen.values())
        print(f"resumed: {len(rows)} counts, lost {lost}, repeated {repeated}")


if __name__ == "__main__":
    main()
