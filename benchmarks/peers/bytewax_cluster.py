"""Bytewax: two processes of one worker each, recovery on.

Timed: from the first call for a record in either process to the return of Bytewax's `cli_main` in the later one, when all lines
are written and the last snapshot is in the recovery store. Start-up, connecting and imports come before; the engine is compiled,
so there is nothing to warm up.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness.contenders import progress

SNAPSHOT_SECONDS = 10
"""The interval that Bytewax's own documentation uses."""


def main(parameters: dict[str, Any]) -> dict[str, Any]:
    processes = parameters["processes"]
    recovery, clock = Path("recovery"), Path("clock").resolve()
    recovery.mkdir()
    subprocess.run([sys.executable, "-m", "bytewax.recovery", str(recovery), str(processes)], check=True)
    flow = {**parameters, "clock": str(clock)}
    environment = {**os.environ, "BENCHMARK_FLOW": json.dumps(flow)}
    addresses = ";".join(f"127.0.0.1:{port}" for port in _free_ports(processes))
    command = [sys.executable, "-m", "bytewax.run", "peers.bytewax_flow:flow", "-w", "1", "-a", addresses]
    command += ["-r", str(recovery), "-s", str(SNAPSHOT_SECONDS), "-b", "0"]
    running = [
        subprocess.Popen(
            [*command, "-i", str(number)],
            env=environment,
        )
        for number in range(processes)
    ]
    progress(f"{processes} processes started")
    if codes := [code for process in running if (code := process.wait())]:
        raise RuntimeError(f"bytewax ended with {codes}")
    clocks = [json.loads(path.read_text()) for path in clock.parent.glob("clock.*")]
    return {
        "events": parameters["events"],
        "seconds": max(each["end"] for each in clocks) - min(each["first"] for each in clocks if "first" in each),
        "snapshot_seconds": SNAPSHOT_SECONDS,
        "batch": parameters["batch"],
    }


def _free_ports(many: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(many)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
