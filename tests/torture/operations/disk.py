"""A small disk that can be filled up: a tmpfs, where this process may mount one."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BALLAST = ".ballast"
_BLOCK = 1 << 20


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[bool]:
    """`folder`, on a disk of its own. False: nobody may mount one here, and it is an ordinary folder."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=700", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True, capture_output=True)


def fill(folder: Path) -> None:
    """Nothing more can be written to the disk, not a byte."""
    data = bytes(_BLOCK)
    with open(folder / BALLAST, "ab", buffering=0) as ballast:
        while data:
            try:
                ballast.write(data)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                data = data[: len(data) // 2]


def relieve(folder: Path) -> None:
    (folder / BALLAST).unlink(missing_ok=True)
