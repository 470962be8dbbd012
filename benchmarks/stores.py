"""What the kinds of state stores cost, in microseconds an entry: `python benchmarks/stores.py [--keys N] [--json FILE]`.

One partition, keys of 12 bytes, values of 100; best of three.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from penstock.state.entries.store_keys import timer_key, value_prefix
from penstock.state.stores.store import Entries, LocalStore, StoreKind, blocks_of
from penstock.state.stores.store_registry import shelf

CHANGED = 2_000


def best(count: int, action: Callable[[], object], before: Callable[[], object] = lambda: None, rounds: int = 3) -> float:
    """Microseconds for each of `count`, in the best round."""
    times = []
    for _ in range(rounds):
        before()
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return round(min(times) / count * 1e6, 2)


def measure(kind: StoreKind, keys: int) -> dict[str, float]:
    folder = tempfile.mkdtemp(prefix="penstock-stores-")
    try:
        return _measure(kind, os.path.join(folder, "layout", "0-0"), keys)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(kind: StoreKind, path: str, count: int) -> dict[str, float]:
    os.makedirs(path)
    random.seed(1)
    names = sorted(value_prefix(n % 64, 1) + n.to_bytes(8, "big") for n in range(count))
    stores = shelf(kind, path)
    state = {"applied": "0"}
    store = stores.fresh()
    base: Entries = [(name, os.urandom(50) + bytes(50)) for name in names]
    filled = best(count, lambda: store.apply("0", None, blocks_of(base)), rounds=1)
    stores.adopt(store)

    def reopened() -> LocalStore:
        found = stores.current()
        assert found is not None
        found.applied()
        return found

    def change(entries: Entries) -> Callable[[], object]:
        def apply() -> None:
            after, state["applied"] = state["applied"], str(int(state["applied"]) + 1)
            reopened().apply_entries(state["applied"], after, entries)

        return apply

    def read(action: Callable[[list[bytes]], object], chosen: list[bytes]) -> float:
        return best(len(chosen), lambda: action(chosen))

    store.rest()
    opened = best(1, lambda: reopened().rest())
    some = sorted(random.sample(names, CHANGED))
    put = best(CHANGED, change([(name, b"new" * 30) for name in some]))
    timers: Entries = [(timer_key(g, 2, t, b"key%d" % t), b"") for g in range(64) for t in range(20)]
    change(timers)()
    store = reopened()
    with store.view() as view:
        shuffled = random.sample(names, 10 * CHANGED)
        figures = {
            "open and close, µs": opened,
            "fill": filled,
            "put": put,
            "get": read(lambda chosen: [view.get(name) for name in chosen], shuffled),
            "get_many": read(view.get_many, shuffled),
            "scan of 20 timers": best(64, lambda: [list(view.scan(value_prefix(g, 2))) for g in range(64)]),
            "scan of everything": best(count, lambda: sum(1 for _ in view.range(b"", None))),
        }
    store.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    kinds: list[StoreKind] = ["memory", "lmdb"]
    if find_spec("rocksdict") is not None:
        kinds.append("rocksdb")
    found = {kind: measure(kind, options.keys) for kind in kinds}
    for what in found["lmdb"]:
        print(f"{what:24}" + "".join(f"{kind}: {figures[what]:>10}   " for kind, figures in found.items()))
    if options.json:
        options.json.write_text(json.dumps({"keys": options.keys, "microseconds": found}, indent=1))


if __name__ == "__main__":
    main()
