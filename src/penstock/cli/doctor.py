"""`penstock doctor`: is everything here that a job needs? If not, what to do."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.errors import AlreadyExistsError, PenstockError
from penstock.state.local import default_root
from penstock.storage import open_storage


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found. `remedy` says what to do if it is a problem."""

    check: str
    ok: bool
    found: str
    remedy: str = ""


Check = Callable[[], Iterable[Finding]]


def doctor_command(
    storage: Annotated[str | None, typer.Option(help="The storage to check; without it a temporary folder.")] = None,
    master: Annotated[str | None, typer.Option(help="The Spark to check, for example spark://host:7077.")] = None,
    local_dir: Annotated[str | None, typer.Option(help="Where local state will be kept.")] = None,
    spark: Annotated[bool, typer.Option(help="Start Spark and look at its workers.")] = True,
) -> None:
    """Check Java, Python, Spark, its workers, storage and local state; say what to fix. Exit code 1 if there is a problem."""
    checks: list[tuple[str, Check]] = [
        ("Python", check_python),
        ("packages", check_packages),
        ("Java", check_java),
        ("storage", lambda: check_storage(storage)),
        ("local state", lambda: check_local_state(local_dir)),
    ]
    if spark:
        checks.append(("Spark", lambda: check_spark(master)))
    found = list(run_checks(checks))
    table = Table()
    for column in ("check", "", "found", "what to do"):
        table.add_column(column, overflow="fold")
    for one in found:
        verdict = Text("ok", style="green") if one.ok else Text("problem", style="bold red")
        table.add_row(one.check, verdict, Text(one.found), Text(one.remedy))
    console = Console(highlight=False)
    console.print(table)
    if not all(one.ok for one in found):
        raise typer.Exit(1)
    console.print("Everything a job needs is here.")


def run_checks(checks: list[tuple[str, Check]]) -> Iterator[Finding]:
    """Every check runs, whatever the others found; one that raises is a problem like any other."""
    for name, check in checks:
        try:
            yield from check()
        except PenstockError as error:
            yield Finding(name, False, f"{error.what}\n{error.detail}".rstrip(), error.hint)
        except Exception as error:
            yield Finding(name, False, f"{type(error).__name__}: {error}", "see the message")


def check_python() -> Iterator[Finding]:
    found = f"{platform.python_version()}, {sys.executable}"
    yield Finding("Python", sys.version_info >= (3, 11), found, "" if sys.version_info >= (3, 11) else "use Python 3.11 or later")


def check_packages() -> Iterator[Finding]:
    for name in ("pyspark", "pyarrow", "lmdb", "msgspec", "obstore"):
        try:
            module = importlib.import_module(name)
        except Exception as error:
            yield Finding(name, False, f"cannot be imported: {error}", f"pip install {name}")
        else:
            version = getattr(module, "__version__", "")
            yield Finding(name, True, version if isinstance(version, str) else "")


def check_java() -> Iterator[Finding]:
    from penstock.executors.spark.java import find_java

    java = find_java()
    yield Finding("Java", True, f"{java.version}, from {java.origin}: {java.path}")


def check_storage(uri: str | None) -> Iterator[Finding]:
    """Write, write exclusively, read back, remove."""
    folder = tempfile.mkdtemp(prefix="penstock-doctor-") if uri is None else None
    try:
        storage = open_storage(uri or folder or "")
        path = f"doctor/{uuid.uuid4().hex}"
        storage.create(path, b"first")
        try:
            storage.create(path, b"second")
            exclusive = False
        except AlreadyExistsError:
            exclusive = storage.read(path) == b"first"
        storage.delete([path])
        where = "a temporary folder" if uri is None else storage.uri
        if exclusive:
            yield Finding("storage", True, f"{where}: can be written, and created in exclusively")
        else:
            yield Finding(
                "storage",
                False,
                f"{where}: a second create replaced the first",
                "exactly-once needs exclusive create: use another file system or object store",
            )
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def check_local_state(local_dir: str | None) -> Iterator[Finding]:
    """Open an LMDB environment where workers on this host will."""
    import lmdb

    root = os.path.abspath(local_dir) if local_dir is not None else default_root()
    os.makedirs(root, mode=0o700, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="doctor-", dir=root)
    try:
        with lmdb.open(folder, map_size=1 << 20) as environment, environment.begin(write=True) as transaction:
            transaction.put(b"key", b"value")
        free = shutil.disk_usage(root).free / 2**30
        enough = free >= 1
        yield Finding("local state", enough, f"{root}, {free:.1f} GiB free", "" if enough else "make room, or set local_dir=")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_spark(master: str | None) -> Iterator[Finding]:
    """A tiny job on real workers."""
    from penstock.executors.spark.probe import look_at_workers

    version, workers = look_at_workers(master)
    yield Finding("Spark", True, f"{version}, a job ran")
    driver = platform.python_version()
    for worker in workers:
        name = f"worker on {worker.host}"
        if worker.python.split(".")[:2] != driver.split(".")[:2]:
            yield Finding(
                name,
                False,
                f"Python {worker.python}, but {driver} here",
                "install the same Python there, or set PYSPARK_PYTHON to it",
            )
        elif worker.missing:
            yield Finding(
                name,
                False,
                "cannot import " + ", ".join(worker.missing),
                "install penstock into the workers' Python, or ship an environment with spark.archives",
            )
        else:
            yield Finding(name, True, f"Python {worker.python}, penstock and what it needs can be imported")
