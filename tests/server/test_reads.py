"""State over HTTP: what is answered, and how errors are told apart."""

from __future__ import annotations

import httpx
import pytest

from tests.server.serving import ask
from tests.snapshots.shops import run_some


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_some(tmp_path_factory.mktemp("shops"))


STATE = "/api/v1/jobs/shops/steps/ledger/state"


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
