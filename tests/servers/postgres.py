"""A PostgreSQL cluster on the loopback interface: WAL at the level of logical decoding, prepared transactions allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path

from tests.servers.owned import OwnedProcess, ServerFailedError, accepts, free_port
from tests.servers.packages import UnavailableError, program

_SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "wal_level": "logical",
    "max_wal_senders": "8",
    "max_replication_slots": "8",
    "max_prepared_transactions": "32",
    "fsync": "on",
    "shared_buffers": "'64MB'",
}
_WHERE = "/usr/lib/postgresql/*/bin"


class PostgresServer:
    """A cluster that may be killed and started again, at the same port. User and database: postgres.

    Its folder is not one of pytest's: those are closed to other users, whenever another pytest starts.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._initdb = program("initdb", "postgresql", _WHERE)
        postgres = program("postgres", "postgresql", _WHERE)
        self.port = free_port()
        folder = Path(tempfile.mkdtemp(prefix="penstock-postgres-", dir="/tmp"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        self._data = folder / "data"
        self._as_owner = _owner(folder)
        self._run([self._initdb, "-D", str(self._data), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-instructions"])
        all_settings = {**_SETTINGS, "port": str(self.port), "unix_socket_directories": f"'{folder}'", **(settings or {})}
        with open(self._data / "postgresql.conf", "a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in all_settings.items())
        self.process = OwnedProcess([*self._as_owner, postgres, "-D", str(self._data)], folder / "postgres.log")

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        (self._data / "postmaster.pid").unlink(missing_ok=True)  # a killed one leaves it
        self.process.start(self._answers)

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        """SIGKILL. What the server has started is in sessions of its own, and goes when it finds its parent gone."""
        self.process.kill()
        while accepts(self.port):
            time.sleep(0.02)

    def _run(self, command: list[str]) -> None:
        done = subprocess.run([*self._as_owner, *command], capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise ServerFailedError(f"{command[0]}:\n{done.stdout}{done.stderr}")

    def _answers(self) -> bool:
        if not accepts(self.port):
            return False
        ready = program("pg_isready", "postgresql-client", _WHERE)
        asked = subprocess.run([ready, "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False, timeout=10)
        return asked.returncode == 0


def _owner(folder: Path) -> list[str]:
    """PostgreSQL does not run as root: then its folder belongs to `postgres`, and so does the server."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        raise UnavailableError("PostgreSQL as root: apt-get install util-linux (for setpriv)")
    try:
        shutil.chown(folder, "postgres", "postgres")
    except LookupError as error:
        raise UnavailableError("PostgreSQL: apt-get install postgresql (there is no user postgres)") from error
    return ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups"]
