"""Metrics over HTTP, and as Prometheus reads them."""

from __future__ import annotations

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock import StreamEnvironment
from tests.server.serving import ask


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("counted"))
    env = StreamEnvironment("counted", executor="inline", parallelism=1, storage=folder, max_records_per_epoch=10)
    env.from_collection(range(30), name="numbers").key_by(lambda n: n % 3).reduce(max, name="most: of all").print()
    env.execute()
    return folder


def test_what_a_job_does(storage: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        (job,) = (await client.get("/api/v1/jobs")).json()["jobs"]
        assert job["name"] == "counted"
        shown = (await client.get("/api/v1/jobs/counted/metrics")).json()
        assert shown["metrics"]["records_in"] == 30
        assert shown["metrics"]["steps"]["numbers"]["records_in"] == 30
        assert shown["snapshot_age_s"] >= 0
        history = (await client.get("/api/v1/jobs/counted/metrics/history")).json()
        assert sum(point["records_in"] for point in history["points"]) == 30

    ask(work, storage)


def test_what_prometheus_reads(storage: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        await client.get("/api/v1/jobs")
        await client.get("/api/v1/jobs/other")
        answer = await client.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        samples = {
            (one.name, *sorted(one.labels.values())): one.value
            for family in text_string_to_metric_families(answer.text)
            for one in family.samples
        }
        job = "counted"
        assert samples["penstock_job_records_in_total", job] == 30
        assert samples["penstock_step_records_in_total", job, "most: of all"] == 30
        assert samples["penstock_requests_total", "200", "list_jobs"] == 1
        assert samples["penstock_requests_total", "404", "show_job"] == 1
        assert samples["penstock_request_seconds_count", "list_jobs"] == 1
        assert samples["penstock_job_snapshot_age_seconds", job] >= 0

    ask(work, storage)
