"""An application that appends orders over HTTP and reads the customer's total, which has them in it.

Here the job, the server and the application are one process. As a rule they are three: `penstock run`, `penstock serve`, yours.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import threading
from collections.abc import Iterator

import httpx
from msgspec import Struct

from penstock import KeyedContext, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.api.job import Job
from penstock.connectors import AppendLogSource
from penstock.server.served_jobs import Sources
from penstock.server.serving import Server, ServerSettings


class Order(Struct):
    customer: str
    cents: int


class Totals(KeyedProcessFunction[str, Order, int]):
    total = ValueState(int, default=0, queryable=True)

    def process(self, order: Order, ctx: KeyedContext[str]) -> Iterator[int]:
        self.total.update(self.total.value + order.cents)
        return iter(())


def build(env: StreamEnvironment) -> None:
    orders = env.from_source(AppendLogSource(schema=Order), name="orders")
    orders.key_by(lambda order: order.customer).process(Totals(), name="totals").print()


def shop(client: httpx.Client) -> None:
    """The application."""
    for number, (customer, cents) in enumerate([("anna", 1250), ("ben", 300), ("anna", 400)]):
        order = {"records": [{"customer": customer, "cents": cents}], "id": f"order-{number}"}
        for _ in range(2):  # as if the first answer had been lost: nothing is counted twice
            position = client.post("/jobs/shop/sources/orders", json=order).raise_for_status().json()["position"]
        answer = client.get(f"/jobs/shop/steps/totals/state/total/{customer}", params={"position": position})
        print(f"{customer} has ordered for {answer.raise_for_status().json()['value'] / 100:.2f} EUR")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        storage = f"{folder}/shop"
        env = StreamEnvironment("shop", executor="inline", parallelism=2, storage=storage)
        build(env)
        env.execute(until_idle=True)  # so that there is a job to serve
        token = secrets.token_hex(20)
        with open(os.open(f"{folder}/tokens", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(f"operator {token}\n")
        job = threading.Thread(target=env.execute)
        job.start()
        server = Server(ServerSettings(sources=Sources(storages=(storage,)), port=0, tokens=f"{folder}/tokens"))
        server.start()
        try:
            with httpx.Client(
                base_url=f"{server.url}/api/v1", headers={"authorization": f"Bearer {token}"}, timeout=30
            ) as client:
                shop(client)
        finally:
            server.stop()
            Job(storage).stop()
            job.join()


if __name__ == "__main__":
    main()
