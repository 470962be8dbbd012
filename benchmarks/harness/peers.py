"""Virtualenvs of the peers, made by pip by package name the first time they are needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from harness.places import PEERS
from harness.progress import say


@dataclass(frozen=True, slots=True)
class Peer:
    """A virtualenv with these packages. With `on_top` it also sees the packages of the virtualenv that runs the benchmark."""

    name: str
    packages: tuple[str, ...]
    on_top: bool = False

    @property
    def python(self) -> Path:
        return PEERS / self.name / "bin" / "python"


BYTEWAX = Peer("bytewax", ("bytewax==0.21.1", "numpy", "pyarrow"))
# transformWithState in Python needs protobuf, which Penstock does not: the same PySpark, and protobuf beside it.
SPARK = Peer("spark", ("protobuf>=6.33.5,<7", "pandas>=2.2"), on_top=True)
# Spark's Kafka connector exists for 4.2 only.
SPARK_KAFKA = Peer("spark-kafka", ("pyspark==4.2.0", "confluent-kafka==2.16.1"))
FLINK = Peer("flink", ("apache-flink==2.3.*",))


def python_of(peer: Peer) -> Path:
    """The Python of the peer's virtualenv, which is made if it is not there."""
    folder = PEERS / peer.name
    ready = folder / ".ready"
    wanted = "\n".join((sys.version, *peer.packages))
    if ready.exists() and ready.read_text() == wanted:
        return peer.python
    say(f"installing {', '.join(peer.packages)} into build/peers/{peer.name}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    if peer.on_top:
        inside = folder / os.path.relpath(sysconfig.get_path("purelib"), sys.prefix)
        (inside / "benchmark-host.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [str(peer.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *peer.packages], check=True)
    ready.write_text(wanted)
    return peer.python
