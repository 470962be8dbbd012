"""Records appended over HTTP, and read back as state."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock import KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.api.job import Job
from penstock.connectors import AppendLogSource
from penstock.server.guard.tokens import Tokens, read_tokens
from tests.server.serving import ask

TOKENS: Tokens = read_tokens(None, f"reader {'r' * 40};operator {'o' * 40}")
OPERATOR = {"authorization": f"Bearer {'o' * 40}"}

URL = "/api/v1/jobs/basket/sources/clicks"
STATE = "/api/v1/jobs/basket/steps/totals/state/total"


class Totals(KeyedProcessFunction[str, dict[str, Any], tuple[str, int]]):
    total = ValueState(int, default=0, queryable=True)

    def process(self, value: dict[str, Any], ctx: Any) -> Iterator[tuple[str, int]]:
        self.total.update(self.total.value + value["n"])
        return iter(())


def basket(storage: Path) -> StreamEnvironment:
    env = StreamEnvironment("basket", executor="inline", parallelism=2, storage=str(storage))
    clicks = env.from_source(AppendLogSource(), name="clicks")
    clicks.key_by(lambda click: str(click["user"])).process(Totals(), name="totals").print()
    return env


@contextmanager
def driven(storage: Path) -> Iterator[None]:
    """The job runs beside, until it is stopped."""
    thread = threading.Thread(target=basket(storage).execute)
    thread.start()
    try:
        for _ in range(500):
            if (storage / "feeds/clicks/log/log.json").exists():
                break
            threading.Event().wait(0.02)
        yield
    finally:
        Job(str(storage)).stop()
        thread.join(60)
        assert not thread.is_alive()


def test_a_write_is_read_back(tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        client.headers.update(OPERATOR)
        first = await client.post(URL, json={"records": [{"user": "a", "n": 2}, {"user": "b", "n": 1}], "id": "x"})
        assert first.status_code == 200, first.text
        assert first.json() == {"position": "clicks:2", "records": 2, "repeated": False}
        again = await client.post(URL, json={"records": [{"user": "a", "n": 2}, {"user": "b", "n": 1}], "id": "x"})
        assert again.json() == {"position": "clicks:2", "records": 2, "repeated": True}
        for total in range(3, 6):
            made = (await client.post(URL, json={"records": [{"user": "a", "n": 1}]})).json()
            read = await client.get(f"{STATE}/a", params={"position": made["position"]})
            assert read.json()["value"] == total
        many = await asyncio.gather(*(client.post(URL, json={"records": [{"user": "c", "n": 1}]}) for _ in range(40)))
        newest = max(many, key=lambda one: int(one.json()["position"].rpartition(":")[2])).json()["position"]
        assert newest == "clicks:45"
        assert (await client.get(f"{STATE}/c", params={"position": newest})).json()["value"] == 40

    with driven(tmp_path):
        ask(work, str(tmp_path), tokens=TOKENS)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (f"{URL}x", {"records": [{}]}, 404, "unknown_source"),
        ("/api/v1/jobs/basket/sources/..%2F..%2Fepochs", {"records": [{}]}, 404, None),
        (URL, {"records": []}, 400, "bad_request"),
        (URL, {"records": [1]}, 400, "bad_request"),
        (URL, {"records": [{}], "id": ""}, 400, "bad_request"),
        (URL, {"records": [{}], "other": 1}, 400, "bad_request"),
        (URL, [], 400, "bad_request"),
    ],
)
def test_what_is_refused(stopped: str, path: str, body: Any, status: int, code: str | None) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        client.headers.update(OPERATOR)
        answer = await client.post(path, content=json.dumps(body), headers={"content-type": "application/json"})
        assert answer.status_code == status, answer.text
        assert code is None or answer.json()["error"]["code"] == code

    ask(work, stopped, tokens=TOKENS)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A job that has started once, and does not run."""
    folder = tmp_path_factory.mktemp("stopped")
    env = basket(folder)
    env.execute(until_idle=True)
    return str(folder)


def test_it_is_taken_while_the_job_does_not_run(stopped: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        client.headers.update(OPERATOR)
        made = (await client.post(URL, json={"records": [{"user": "z", "n": 7}]})).json()
        early = await client.get(f"{STATE}/z", params={"position": made["position"], "wait": 0})
        assert (early.status_code, early.json()["error"]["code"]) == (409, "epoch_not_reached")
        await asyncio.to_thread(lambda: basket(Path(stopped)).execute(until_idle=True))
        assert (await client.get(f"{STATE}/z", params={"position": made["position"]})).json()["value"] == 7

    ask(work, stopped, tokens=TOKENS)


def test_it_needs_a_role(stopped: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        client.headers.update(OPERATOR)
        for token, status in (("r", 403), ("x", 401), ("o", 200)):
            header = {"authorization": f"Bearer {token * 40}"}
            answer = await client.post(URL, json={"records": [{"user": "q", "n": 1}]}, headers=header)
            assert answer.status_code == status, answer.text

    ask(work, stopped, tokens=TOKENS)
