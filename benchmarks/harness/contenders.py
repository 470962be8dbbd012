"""Runs one contender in a fresh process.

A contender is a module with `main(parameters) -> result`, both JSON-able, started as `python -m harness.contenders MODULE FILE`:
parameters are read from the file, the result is written next to it. What it prints goes to a log; lines that begin with `>` are
also shown. With a `source`, Penstock is imported from there, and the contender checks at its end that it was.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.places import BENCHMARKS, SOURCE
from harness.progress import say

Result = dict[str, Any]

ORIGIN = "BENCHMARK_PENSTOCK_SOURCE"
"""The variable that tells a contender to check where its Penstock is from."""


class ContenderError(Exception):
    """The contender's process ended with an error; the message ends with the last lines of its log."""


def run_contender(
    module: str,
    parameters: Mapping[str, Any],
    folder: Path,
    *,
    label: str,
    python: Path | None = None,
    source: Path | None = None,
    timeout: float = 3600,
) -> Result:
    """The result of `module.main(parameters)`, from a process of its own that works in `folder`."""
    say(f"{label}: starting")
    request, log = folder / "request.json", folder / "log.txt"
    request.write_text(json.dumps(dict(parameters)))
    interpreter = str(python or sys.executable)
    with open(log, "w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [interpreter, "-u", "-m", "harness.contenders", module, str(request)],
            cwd=folder,
            env=environment(interpreter, folder, source),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        watchdog = threading.Timer(timeout, _end, [process])
        watchdog.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                out.write(line)
                if line.startswith(">"):
                    say(f"{label}: {line[1:].strip()}")
            code = process.wait()
        finally:
            watchdog.cancel()
            _end(process)
    answer = folder / "result.json"
    if code != 0 or not answer.exists():
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
        raise ContenderError(f"{label} ended with code {code}; the end of {log}:\n{tail}")
    result: Result = json.loads(answer.read_text())
    return result


def environment(python: str, folder: Path, source: Path | None) -> dict[str, str]:
    """The same for every contender: its Python for Spark's workers too, a Java, temporary files in the run's folder.

    `PYTHONPATH` comes before what is installed, in Spark's workers and in child processes too."""
    from penstock.executors.spark.java import ensure_java_home

    ensure_java_home()
    temporary, shuffles = folder / "tmp", folder / "spark-local"
    temporary.mkdir(exist_ok=True)
    shuffles.mkdir(exist_ok=True)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(BENCHMARKS), str(source or SOURCE))),
        "PYTHONUNBUFFERED": "1",
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_DIRS": str(shuffles),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(temporary),
        "TZ": "UTC",
        **({ORIGIN: str(source)} if source else {}),
    }


def progress(text: str) -> None:
    """From inside a contender: a line for the person who waits."""
    print(f"> {text}", flush=True)


def _end(process: subprocess.Popen[str]) -> None:
    """Ends the contender and whatever it started (it leads its own session)."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _child(module: str, request: Path) -> None:
    result = importlib.import_module(module).main(json.loads(request.read_text()))
    if ORIGIN in os.environ:
        importlib.import_module("harness.origin").check_origin(Path(os.environ[ORIGIN]))
    answer = request.with_name("result.json")
    answer.with_suffix(".tmp").write_text(json.dumps(result))
    answer.with_suffix(".tmp").rename(answer)


if __name__ == "__main__":
    _child(sys.argv[1], Path(sys.argv[2]))
