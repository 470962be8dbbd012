"""A sink of one's own, with a two-phase commit.

Writers in the workers put payments into `pending/`, where nobody looks: the first phase. When all of them are ready and the epoch
is durable, the committer on the driver moves them to `paid/`: the second. Here the bank is closed at the first try; the engine
tries again, and every payment is made exactly once. `docs/sinks.md` has ready bases for most targets.

python examples/two_phase_sink.py
"""

import glob
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock import StreamEnvironment
from penstock.connectors.protocol import CommitterContext, WriterContext
from penstock.ids import Epoch
from penstock.records import Batch


@dataclass(frozen=True)
class BankSink:
    """The definition: frozen and picklable, it goes to the workers."""

    folder: str
    volatile: bool = False

    def writer(self, context: WriterContext) -> "BankWriter":
        return BankWriter(self.folder, context)

    def committer(self, context: CommitterContext) -> "BankCommitter":
        return BankCommitter(self.folder)

    def describe(self) -> str:
        return f"payments in {self.folder}"


class BankWriter:
    """In a worker: one for each partition and epoch that has something to write."""

    def __init__(self, folder: str, context: WriterContext) -> None:
        # A task may run twice, so the name holds the attempt.
        self.name = f"{context.epoch:010d}-{context.partition}-{context.attempt}.json"
        self.path = os.path.join(folder, "pending", self.name)
        self.payments: list[Any] = []

    def write(self, batch: Batch) -> None:
        self.payments += batch.values()

    def prepare(self) -> dict[str, Any]:
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path, "x") as file:
            json.dump(self.payments, file)
            file.flush()
            os.fsync(file.fileno())
        return {"name": self.name}  # all it takes to commit; kept in the epoch's manifest

    def abort(self) -> None:
        if os.path.exists(self.path):
            os.remove(self.path)


class BankCommitter:
    """On the driver. `commit` may be called again for an epoch, after a crash or an error: it must not matter."""

    def __init__(self, folder: str) -> None:
        self.pending, self.paid = os.path.join(folder, "pending"), os.path.join(folder, "paid")
        self.closed = True

    def commit(self, epoch: Epoch, committables: Sequence[Any]) -> None:
        if self.closed:
            self.closed = False
            raise ConnectionError("the bank is closed")
        os.makedirs(self.paid, exist_ok=True)
        for committable in committables:
            try:
                os.rename(os.path.join(self.pending, committable["name"]), os.path.join(self.paid, committable["name"]))
            except FileNotFoundError:
                pass  # moved by an earlier try

    def abort(self, epoch: Epoch, committables: Sequence[Any]) -> None:
        for committable in committables:
            path = os.path.join(self.pending, committable["name"])
            if os.path.exists(path):
                os.remove(path)

    def close(self) -> None:
        pass


def build(env: StreamEnvironment, payments: int, folder: str) -> None:
    stream = env.from_collection(range(payments), name="orders").map(lambda n: {"payment": n, "cents": 100 + n}, name="payments")
    stream.rebalance().map(lambda payment: payment).sink_to(BankSink(folder), name="bank")


def paid(folder: str) -> list[dict[str, int]]:
    found: list[dict[str, int]] = []
    for path in sorted(glob.glob(os.path.join(folder, "paid", "*.json"))):
        with open(path) as file:
            found += json.load(file)
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        env = StreamEnvironment("payments")
        build(env, 100, folder)
        result = env.execute()
        payments = paid(folder)
        print(
            f"{len(payments)} payments, {len({p['payment'] for p in payments})} different, {result.restarts} commit tried again"
        )


if __name__ == "__main__":
    main()
