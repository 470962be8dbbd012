"""State over HTTP: what is answered, and how errors are told apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from penstock import ListState, MapState, ReducingState, ValueState
from penstock.jobs.terms import open_job
from penstock.query import AsyncClient
from penstock.query.catalog import Access
from penstock.query.errors import UnknownKeyError
from penstock.storage import LocalStorage
from tests.server.serving import BASE, ask, asked
from tests.snapshots.shops import Best, Ledger, run_some


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_some(tmp_path_factory.mktemp("shops"))


STEP = "/api/v1/jobs/shops/steps/ledger"
STATE = f"{STEP}/state"


def test_a_value(storage: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.get(f"{STATE}/orders/shop-3")
        assert answer.status_code == 200
        body = answer.json()
        assert body["value"] == 35
        assert body["watermark"] == 1_700_000_793_999
        again = await client.get(f"{STATE}/orders/shop-3", headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        kept = await client.get(f"{STATE}/orders/shop-3", params={"at": body["epoch"] - 1})
        assert kept.json()["value"] < 35

    ask(work, storage)


def test_what_each_kind_of_state_answers(storage: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        async def value(step: str, state: str) -> Any:
            answer = await client.get(f"/api/v1/jobs/shops/steps/{step}/state/{state}/shop-3")
            assert answer.status_code == 200, answer.text
            return answer.json()["value"]

        assert len(await value("ledger", "recent")) == 35
        assert sum(n for _, n in await value("ledger", "items")) == 35
        assert await value("ledger", "total") == 17410
        assert await value("ledger", "mean") == [17410, 35]
        (window,) = await value("dearest", "contents")
        assert (window["start"], window["end"]) == ("2023-11-14T22:25:00Z", "2023-11-14T22:30:00Z")
        (hour,) = await value("hourly", "slices")
        assert hour["value"]["count()"] == 17
        (visit,) = await value("visits", "session runs")
        assert visit["value"] == {"count()": 35, "sum('cents')": 17410}
        assert "2023-11-14T22:26:43Z" in await value("ledger", "timers:event")

    ask(work, storage)


def test_many_keys_at_one_epoch(storage: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.post(f"{STATE}/orders/keys", json={"keys": ["shop-3", "nobody", "shop-4"]})
        found = answer.json()["values"]
        assert [(one["key"], one["found"]) for one in found] == [("shop-3", True), ("nobody", False), ("shop-4", True)]
        too_many = await client.post(f"{STATE}/orders/keys", json={"keys": ["x"] * 1001})
        assert too_many.status_code == 400

    ask(work, storage)


@pytest.mark.parametrize("limit", [1, 7, 1000])
def test_entries_come_in_pages(storage: str, limit: int) -> None:
    async def pages(client: httpx.AsyncClient, state: str, **query: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        after: dict[str, Any] = {}
        while True:
            answer = await client.get(f"{STEP}/entries/{state}", params={"limit": limit, **query, **after})
            body = answer.json()
            assert len(body["entries"]) <= limit
            found += body["entries"]
            if body["next"] is None:
                return found
            after = {"after": body["next"]}

    async def work(client: httpx.AsyncClient) -> None:
        every = await pages(client, "orders")
        assert len(every) == 23
        assert {row["key"] for row in every} == {f"shop-{n}" for n in range(23)}
        tens = await pages(client, "orders", prefix="shop-1")
        assert sorted(row["key"] for row in tens) == ["shop-1", *(f"shop-{n}" for n in range(10, 20))]
        some = await pages(client, "items", **{"from": "shop-2", "to": "shop-21"})
        assert {row["key"] for row in some} == {"shop-2", "shop-20"}
        assert len(some) == len({(row["key"], row["map_key"]) for row in some}) == 22

    ask(work, storage)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/v1/jobs/other", 404, "unknown_job"),
        ("/api/v1/jobs/shops/steps/other", 404, "unknown_step"),
        (f"{STATE}/other/x", 404, "unknown_state"),
        (f"{STATE}/orders/x", 404, "unknown_key"),
        ("/api/v1/other", 404, "unknown_route"),
        (f"{STATE}/orders/shop-3?at=9999", 410, "epoch_gone"),
        (f"{STATE}/orders/shop-3?least=9999&wait=0", 409, "epoch_not_reached"),
        (f"{STATE}/orders/shop-3?at=x", 400, "bad_request"),
        (f"{STATE}/orders/shop-3?other=1", 400, "bad_request"),
        (f"{STATE}/orders/shop-3?at=1&at=1", 400, "bad_request"),
        (f"{STEP}/entries/orders?after=x", 400, "bad_request"),
        (f"{STATE}/orders", 400, "bad_request"),
    ],
)
def test_errors_are_told_apart(storage: str, path: str, status: int, code: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)

    ask(work, storage)


def test_what_there_is(storage: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        (job,) = (await client.get("/api/v1/jobs")).json()["jobs"]
        assert (job["name"], job["parallelism"]) == ("shops", 2)
        steps = (await client.get("/api/v1/jobs/shops/steps")).json()["steps"]
        assert {step["name"] for step in steps} >= {"ledger", "hourly", "visits", "dearest"}
        document = (await client.get("/api/v1/openapi.json")).json()
        assert "/api/v1/jobs/{job}/steps/{step}/state/{state}/{key}" in document["paths"]

    ask(work, storage)


def test_only_what_is_declared_can_be_queried(storage: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for path in (f"{STATE}/orders/shop-3", f"{STEP}/entries/orders", f"{STEP}/changes", f"{STEP}/changes?state=orders"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "not_queryable")

    ask(work, storage, sources={"access": Access()})


@dataclass
class Asker:
    """The client of a server in this process."""

    client: AsyncClient

    async def value(self, state: str, key: str, declared: Any = None) -> Any:
        return (await self.client.get("shops", "ledger", state, key, declared)).value


def test_the_client_gives_values_of_the_declared_types(storage: str) -> None:
    async def work(http: httpx.AsyncClient) -> None:
        async with AsyncClient(BASE, transport=http._transport, retry_s=1) as client:
            asker = Asker(client)
            assert await asker.value("orders", "shop-3") == 35
            best = await asker.value("best", "shop-3", ValueState(Best))
            assert isinstance(best, Best)
            assert len(await asker.value("recent", "shop-3", Ledger.recent)) == 35
            assert sum((await asker.value("items", "shop-3", MapState(str, int))).values()) == 35
            assert await asker.value("total", "shop-3", ReducingState(int, max)) == 17410
            assert await asker.value("mean", "shop-3", Ledger.mean) == 17410 / 35
            assert await asker.value("orders", "nobody", Ledger.orders) == 0
            assert await asker.value("recent", "nobody", ListState(int)) == []
            many = await client.get_many("shops", "ledger", "orders", ["shop-3", "nobody"])
            assert many.value == [35, None]
            with pytest.raises(UnknownKeyError):
                await asker.value("orders", "nobody")

    ask(work, storage)


def test_servers_that_have_some_key_groups_each(storage: str, tmp_path: Any) -> None:
    """The client finds the one that has the key."""

    class Both(httpx.AsyncBaseTransport):
        def __init__(self, by_port: dict[int | None, httpx.AsyncBaseTransport]) -> None:
            self.by_port = by_port

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            return await self.by_port[request.url.port].handle_async_request(request)

    async def work(low: httpx.AsyncClient) -> None:
        high_groups = {"replica": True, "key_groups": range(64, 128), "local_dir": str(tmp_path / "b")}
        async with asked(storage, sources=high_groups) as high:
            both = Both({1: low._transport, 2: high._transport})
            async with AsyncClient(["http://localhost:1", "http://localhost:2"], transport=both, retry_s=1) as client:
                counts = [(await client.get("shops", "ledger", "orders", f"shop-{n}")).value for n in range(23)]
                assert sum(counts) == 800
        shown = (await low.get("/api/v1/jobs/shops")).json()
        assert shown["key_groups"] == [0, 63]
        assert shown["lag"] == 0

    ask(work, storage, sources={"replica": True, "key_groups": range(64), "local_dir": str(tmp_path / "a")})


def test_a_job_that_restores_says_when_to_ask_again(tmp_path: Any) -> None:
    open_job(LocalStorage(str(tmp_path / "new")), "shops", 128, otherwise=128)

    async def work(client: httpx.AsyncClient) -> None:
        answer = await client.get(f"{STATE}/orders/shop-3")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "restoring")
        assert int(answer.headers["retry-after"]) >= 1
        shown = (await client.get("/api/v1/jobs/shops")).json()
        assert shown["epoch"] is None
        assert shown["problem"]

    ask(work, str(tmp_path / "new"))
