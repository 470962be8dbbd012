"""`penstock stop`: ask a job's driver, through its storage, to stop after the current epoch."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from penstock import paths
from penstock.cli.jobs import find_jobs
from penstock.cli.problems import clean_errors
from penstock.epochs.control import ask, wait_for_answer
from penstock.epochs.drivers import is_alive, newest_term
from penstock.errors import ConfigError, PenstockError
from penstock.storage import Storage, open_storage


def stop_command(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's storage: a folder or URI.")],
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the driver's answer.")] = 60.0,
    trace: Annotated[bool, typer.Option("--trace", help="Show the traceback of an error.")] = False,
) -> None:
    """Stop a running job after its current epoch."""
    with clean_errors(trace=trace):
        typer.echo(stop_job(open_storage(job), timeout))


def stop_job(storage: Storage, timeout: float) -> str:
    """What the driver answered. Nobody there, or no answer: an error that says so."""
    if not storage.exists(paths.JOB):
        below = [found.uri for found in find_jobs(storage)]
        raise ConfigError(
            f"{storage.uri} holds no job",
            detail="".join(f"there is one in {uri}\n" for uri in below[:5]).rstrip(),
            hint="give the storage that the job was run with; `penstock jobs ROOT` lists those below a folder",
        )
    term = newest_term(storage)
    if term is not None and term.host == socket.gethostname() and not is_alive(term):
        raise PenstockError(
            "the job is not running",
            detail=f"its last driver, process {term.pid} on this host, is gone",
            hint="there is nothing to stop; what it committed is safe",
        )
    identity = ask(storage, "stop")
    answer = wait_for_answer(storage, identity, timeout)
    if answer is None:
        storage.delete([paths.request(identity)])
        driver = "nobody has ever driven it" if term is None else f"its last driver is process {term.pid} on {term.host}"
        raise PenstockError(
            f"nobody answered within {timeout:g} seconds",
            detail=f"{driver}; the request has been taken back",
            hint="if that process still runs, it may be in a long epoch: wait longer with --timeout, or send it SIGTERM",
        )
    if not answer.ok:
        raise PenstockError(f"the driver refused: {answer.message}")
    return answer.message
