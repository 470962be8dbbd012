"""SIGKILL of the driver and of the server while clients append: what was answered is there, once."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

PROGRAM = Path(__file__).parent / "programs" / "clicks.py"
TOKEN = "o" * 40
CLIENTS = 3
KILLS = 4


class Processes:
    """The driver and the server, started again when they were killed."""

    def __init__(self, storage: Path) -> None:
        self.storage = storage
        self.environment = {**os.environ, "PENSTOCK_SERVE_TOKENS": f"operator {TOKEN}"}
        self.url = ""
        self.driver = self.start_driver()
        self.server: subprocess.Popen[str] | None = None

    def start_driver(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(PROGRAM), str(self.storage)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True
        )

    def start_server(self) -> None:
        command = [sys.executable, "-c", "from penstock.cli import main; main()", "serve", str(self.storage), "--port", "0"]
        self.server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.environment)
        assert self.server.stdout is not None
        found = re.search(r"http://\S+", self.server.stdout.readline())
        assert found is not None
        self.url = found[0]

    def kill_server(self) -> None:
        assert self.server is not None
        self.server.send_signal(signal.SIGKILL)
        self.server.wait()

    def kill_driver(self) -> None:
        self.driver.send_signal(signal.SIGKILL)
        self.driver.wait()

    def close(self) -> None:
        for process in (self.driver, self.server):
            if process is not None:
                process.kill()
                process.wait()


@pytest.mark.slow
def test_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    chance = random.Random(7)
    processes = Processes(tmp_path)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "feeds/clicks/log/log.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        processes.start_server()
        over = threading.Event()
        sent: list[list[int]] = [[] for _ in range(CLIENTS)]
        last = [""] * CLIENTS

        def append(client: int) -> None:
            n = 0
            while not over.is_set():
                body = {"records": [{"user": f"u{client}", "n": n}, {"user": f"u{client}", "n": n + 1}], "id": f"{client}-{n}"}
                while True:
                    try:
                        answer = httpx.post(
                            f"{processes.url}/api/v1/jobs/basket/sources/clicks",
                            json=body,
                            headers={"authorization": f"Bearer {TOKEN}"},
                            timeout=5,
                        )
                    except httpx.HTTPError:
                        time.sleep(0.05)
                        continue
                    if answer.status_code == 200:
                        last[client] = answer.json()["position"]
                        break
                    time.sleep(0.05)
                sent[client] += [n, n + 1]
                n += 2

        threads = [threading.Thread(target=append, args=(client,)) for client in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for kill in range(KILLS):
            time.sleep(chance.uniform(0.2, 0.8))
            if kill % 2:
                processes.kill_driver()
                processes.driver = processes.start_driver()
            else:
                processes.kill_server()
                processes.start_server()
        over.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        for client in range(CLIENTS):
            assert sent[client]
            for state, expected in (("total", sum(sent[client])), ("count", len(sent[client]))):
                url = f"{processes.url}/api/v1/jobs/basket/steps/totals/state/{state}/u{client}"
                query = {"position": last[client], "wait": "50"}
                answer = httpx.get(url, params=query, headers={"authorization": f"Bearer {TOKEN}"}, timeout=60)
                assert answer.status_code == 200, answer.text
                assert answer.json()["value"] == expected
    finally:
        processes.close()
