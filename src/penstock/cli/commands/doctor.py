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
from rich.table import Table
from rich.text import Text

from penstock.cli.screen.tables import console_for, print_table
from penstock.cli.strays import stray_names
from penstock.errors import AlreadyExistsError, PenstockError
from penstock.executors.spark.java import find_java
from penstock.executors.spark.starting import check_scripts, requirement
from penstock.state.stores.local import default_root
from penstock.storage import open_storage


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found. `remedy` says what to do if it is a problem."""

    check: str
    ok: bool
    found: str
    remedy: str = ""


_NO_REMEDY = "this is not a problem that Penstock knows: what was found says what failed"

Check = Callable[[], Iterable[Finding]]


def doctor_command(
    place: Annotated[
        str | None, typer.Argument(metavar="[STORAGE]", help="The storage to check; without it a temporary folder.")
    ] = None,
    storage: Annotated[str | None, typer.Option(help="The same, as an option.")] = None,
    master: Annotated[str | None, typer.Option(help="The Spark to check, for example spark://host:7077.")] = None,
    local_dir: Annotated[str | None, typer.Option(help="Where local state will be kept.")] = None,
    spark: Annotated[bool, typer.Option(help="Start Spark and look at its workers.")] = True,
) -> None:
    """Check Java, Python, Spark, its workers, storage and local state; say what to fix. Exit code 1 if there is a problem."""
    checks: list[tuple[str, Check]] = [
        ("Python", check_python),
        ("packages", check_packages),
        ("Java", check_java),
        ("storage", lambda: check_storage(place or storage)),
        ("names", lambda: check_names(place or storage)),
        ("local state", lambda: check_local_state(local_dir)),
    ]
    if spark:
        checks.append(("Spark's scripts", check_spark_scripts))
    found = list(run_checks(checks))
    if spark:
        found += spark_after(found, lambda: check_spark(master))
    table = Table()
    for column in ("check", "", "found", "what to do"):
        table.add_column(column, overflow="fold")
    for one in found:
        verdict = Text("ok", style="green") if one.ok else Text("problem", style="bold red")
        table.add_row(one.check, verdict, Text(one.found), Text(one.remedy))
    console = console_for()
    print_table(console, table, prose=("found", "what to do"))
    if not all(one.ok for one in found):
        raise typer.Exit(1)
    console.print("Everything a job needs is here.")


NEEDED_BY_SPARK = ("pyspark", "Java", "Spark's scripts")


def spark_after(found: list[Finding], check: Check) -> list[Finding]:
    """Spark is started only where it can: what is missing has been found, and has a remedy of its own."""
    missing = [one.check for one in found if not one.ok and one.check in NEEDED_BY_SPARK]
    if missing:
        names = " and ".join(missing)
        return [
            Finding("Spark", False, f"not started, for want of {names}", f"first do what is said about {names}, then check again")
        ]
    return list(run_checks([("Spark", check)]))


def run_checks(checks: list[tuple[str, Check]]) -> Iterator[Finding]:
    """Every check runs, whatever the others found; one that raises is a problem like any other."""
    for name, check in checks:
        try:
            yield from check()
        except PenstockError as error:
            yield Finding(name, False, f"{error.what}\n{error.detail}".rstrip(), error.hint)
        except Exception as error:
            yield Finding(name, False, f"{type(error).__name__}: {error}", _NO_REMEDY)


def check_python() -> Iterator[Finding]:
    found = f"{platform.python_version()}, {sys.executable}"
    yield Finding("Python", sys.version_info >= (3, 11), found, "" if sys.version_info >= (3, 11) else "use Python 3.11 or later")


def check_packages() -> Iterator[Finding]:
    for name in ("pyspark", "pyarrow", "lmdb", "msgspec", "obstore"):
        try:
            module = importlib.import_module(name)
        except Exception as error:
            again = f"{sys.executable} -m pip install --force-reinstall '{requirement(name)}'"
            yield Finding(name, False, f"cannot be imported: {error}", again)
        else:
            version = getattr(module, "__version__", "")
            yield Finding(name, True, version if isinstance(version, str) else "")


def check_java() -> Iterator[Finding]:
    java = find_java()
    yield Finding("Java", True, f"{java.version}, from {java.origin}: {java.path}")


def check_spark_scripts() -> Iterator[Finding]:
    yield Finding("Spark's scripts", True, f"can be run, in {check_scripts()}")


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


SHOWN_NAMES = 10


def check_names(uri: str | None) -> Iterator[Finding]:
    """What lies in a job's storage, or in a sink's folder, and is not Penstock's: harmless, but not for ever unexplained."""
    strays = stray_names(open_storage(uri)) if uri is not None else []
    if strays:
        more = len(strays) - SHOWN_NAMES
        names = ", ".join(map(ascii, strays[:SHOWN_NAMES])) + (f" and {more} more" if more > 0 else "")
        yield Finding("names", True, f"{len(strays)} not Penstock's, and passed over: {names}", "remove what nobody needs")


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
