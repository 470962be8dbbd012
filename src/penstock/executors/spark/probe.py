"""A tiny job that looks at the workers from inside: for `penstock doctor`, and for set-up, whose class archive it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.executors.spark.session import end_session, make_session

NEEDED = ("penstock", "pyarrow", "lmdb", "msgspec", "cloudpickle")
"""What a worker must be able to import."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker: where it runs, its Python, and what it cannot import."""

    host: str
    python: str
    missing: list[str] = field(default_factory=list)


def look_at_workers(master: str | None) -> tuple[str, list[WorkerView]]:
    """Spark's version and what its workers look like."""
    session = make_session("doctor", master, {}, record=True)
    try:
        context = session.sparkContext
        tasks = max(2, context.defaultParallelism)
        seen = context.parallelize(range(tasks), tasks).mapPartitions(_probe(NEEDED)).collect()
        return session.version, sorted({_key(view): WorkerView(*view) for view in seen}.values(), key=lambda v: v.host)
    finally:
        session.stop()


def _key(view: tuple[str, str, list[str]]) -> tuple[str, str, str]:
    return view[0], view[1], ",".join(view[2])


def _probe(needed: tuple[str, ...]) -> Callable[[Iterable[int]], Iterator[tuple[str, str, list[str]]]]:
    """Made from its source, outside of any module: it is pickled by value, so a worker without Penstock can say so."""
    namespace: dict[str, Any] = {"needed": needed, "__name__": "__main__"}
    exec(_PROBE, namespace)
    return namespace["probe"]  # type: ignore[no-any-return]


_PROBE = """
def probe(numbers):
    import importlib, platform, socket
    missing = []
    for name in needed:
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing.append(f"{name} ({error})")
    yield socket.gethostname(), platform.python_version(), missing
"""

if __name__ == "__main__":
    look_at_workers("local[2]")
    end_session()
