"""The process that Python workers are forked from."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

PROGRAM = """
import socket, sys
from penstock.executors.spark.daemon import without_a_word

def answer(connection, authenticated):
    for _ in range(100):
        connection.sendall(bytes(1 << 20))
    return 0

without_a_word(answer)(socket.socket(fileno=int(sys.argv[1])), True)
"""


def test_a_worker_whose_jvm_has_gone_says_nothing() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        number = theirs.fileno()
        ours.close()
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(number)],
            pass_fds=[number],
            env=dict(os.environ),
            capture_output=True,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
