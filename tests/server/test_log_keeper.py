"""The last lines of a driver's log, kept in the storage and told by the server."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import httpx

from penstock import StreamEnvironment
from penstock.jobs.metrics.kept_log import LINES, LONGEST, read_log
from penstock.jobs.paths import DRIVER_LOG, is_ours
from penstock.server.guard.tokens import read_tokens
from penstock.storage import LocalStorage
from tests.server.serving import ask

log = logging.getLogger("shop")
TOKENS: Any = read_tokens(None, f"reader {'r' * 40};operator {'o' * 40}")


def run(folder: Path, many: int) -> None:
    def note(n: int) -> int:
        log.warning("order %d, password=hunter2 %s", n, "x" * (2 * LONGEST))
        return n

    env = StreamEnvironment("shop", executor="inline", parallelism=1, storage=str(folder), max_records_per_epoch=10)
    env.from_collection(range(many), name="orders").map(note).print()
    env.execute()


def test_it_is_kept_and_bounded(tmp_path: Path) -> None:
    handlers = list(logging.getLogger().handlers)
    run(tmp_path, LINES + 20)
    assert logging.getLogger().handlers == handlers
    lines = [line for line in read_log(LocalStorage(str(tmp_path))) if line.logger == "shop"]
    assert lines[-1].text.startswith(f"order {LINES + 19}, ")
    assert len(lines) <= LINES
    assert max(len(line.text) for line in lines) <= LONGEST
    assert not any("hunter2" in line.text for line in lines)
    assert is_ours(DRIVER_LOG)

    async def work(client: httpx.AsyncClient) -> None:
        url = "/api/v1/jobs/shop/log"
        operator = {"authorization": f"Bearer {'o' * 40}"}
        assert (await client.get(url, headers={"authorization": f"Bearer {'r' * 40}"})).status_code == 403
        shown = (await client.get(url, params={"lines": 3}, headers=operator)).json()["lines"]
        assert len(shown) == 3
        assert shown[-1]["level"] == "WARNING"

    ask(work, str(tmp_path), tokens=TOKENS)


def test_a_storage_that_cannot_be_read_has_no_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "driver.json").write_text("{")
    assert read_log(LocalStorage(str(tmp_path))) == []
