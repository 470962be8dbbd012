"""Async I/O and a lookup join: a stream enriched from services that are asked over the network.

The program starts both services itself, on this machine: an HTTP service that says what a city's weather is, and refuses now and
then; and a table of customers in SQLite, whose client knows no asyncio. `docs/concepts/async-io.md` explains the rest.

python examples/ask_a_service.py
"""

import asyncio
import json
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from penstock import DataStream, StreamEnvironment
from penstock.config import LookupCache, Retry
from penstock.contexts import RuntimeContext
from penstock.functions import AsyncFunction, MapFunction

CITIES = {"vienna": 21, "zurich": 17, "berlin": 19}
CUSTOMERS = [(1, "Ann", "vienna"), (2, "Bob", "zurich"), (3, "Cy", "berlin")]


@dataclass(frozen=True)
class Order:
    number: int
    customer: int


@dataclass(frozen=True)
class Delivery:
    number: int
    name: str
    city: str


class Customers(MapFunction[list[int], dict[int, tuple[str, str]]]):
    """Looks customers up, many in one query. The client blocks, so it is called in threads."""

    def __init__(self, path: str) -> None:
        self.path = path

    def map(self, keys: list[int]) -> dict[int, tuple[str, str]]:
        with sqlite3.connect(self.path) as database:
            marks = ", ".join("?" * len(keys))
            rows = database.execute(f"SELECT id, name, city FROM customers WHERE id IN ({marks})", keys)
            return {id: (name, city) for id, name, city in rows}


class Weather(AsyncFunction[Delivery, str]):
    """Asks the weather service; many requests are under way at once."""

    def __init__(self, port: int) -> None:
        self.port = port

    def open(self, context: RuntimeContext) -> None:
        self.context = context

    async def async_invoke(self, value: Delivery) -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"GET /{value.city} HTTP/1.0\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
        if b" 200 " not in head.splitlines()[0]:
            raise ConnectionError(head.splitlines()[0].decode())
        self.context.count("answered")
        return f"{value.number}: to {value.name} in {value.city}, at {json.loads(body)['celsius']} degrees"


def build(env: StreamEnvironment, orders: list[Order], customers: str, weather_port: int) -> DataStream[str]:
    def delivery(order: Order, customer: tuple[str, str]) -> Delivery:
        return Delivery(order.number, *customer)

    deliveries = env.from_collection(orders, name="orders").lookup_join(
        "customer",
        Customers(customers),
        threads=True,
        capacity=2,
        cache=LookupCache(size=1_000, ttl=60),
        join=delivery,
        name="customers",
    )
    return deliveries.async_map(
        Weather(weather_port), capacity=20, timeout=10, retry=Retry(attempts=5, first_delay=0.01), name="weather"
    )


@contextmanager
def weather_service() -> Iterator[int]:
    """A service on a port of its own, which refuses every fifth request."""
    requests = 0

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal requests
            requests += 1
            self.send_response(503 if requests % 5 == 0 else 200)
            self.end_headers()
            self.wfile.write(json.dumps({"celsius": CITIES[self.path[1:]]}).encode())

        def log_message(self, format: str, *args: object) -> None:
            return

    class Service(ThreadingHTTPServer):
        request_queue_size = 100

    with Service(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()


def main() -> None:
    orders = [Order(number, 1 + number % 4) for number in range(60)]  # there is no customer 4
    with tempfile.TemporaryDirectory() as folder, weather_service() as port:
        path = str(Path(folder) / "customers.db")
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT)")
            database.executemany("INSERT INTO customers VALUES (?, ?, ?)", CUSTOMERS)
        env = StreamEnvironment("ask-a-service")
        lines = build(env, orders, path, port).execute_and_collect()
    for line in sorted(lines, key=lambda line: int(line.split(":")[0]))[:3]:
        print(line)
    print(f"{len(lines)} deliveries of {len(orders)} orders")


if __name__ == "__main__":
    main()
