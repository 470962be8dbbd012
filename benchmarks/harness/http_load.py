"""Gets at a rate, over connections that stay open; how long they took: `-m harness.http_load URL KEYS RATE SECONDS N`."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from urllib.parse import urlsplit


async def one_connection(url: str, keys: int, rate: float, until: float, seed: int, took: list[float]) -> int:
    """The number of answers that were not a value."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    host, port, path = parts.hostname, parts.port, parts.path
    chosen = random.Random(seed)
    reader, writer = await asyncio.open_connection(host, port)
    began, sent, wrong = time.monotonic() + seed * 0.001, 0, 0
    while time.monotonic() < until:
        due = began + sent / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        request = f"GET {path}{chosen.randrange(keys)} HTTP/1.1\r\nhost: {host}\r\n\r\n"
        start = time.monotonic()
        writer.write(request.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        await reader.readexactly(length)
        took.append(time.monotonic() - start)
        wrong += not head.startswith(b"HTTP/1.1 200")
        sent += 1
    writer.close()
    return wrong


async def load(url: str, keys: int, rate: float, seconds: float, connections: int) -> dict[str, float]:
    took: list[float] = []
    until = time.monotonic() + seconds
    each = [one_connection(url, keys, rate / connections, until, seed, took) for seed in range(connections)]
    wrong = sum(await asyncio.gather(*each))
    took.sort()
    at = {f"p{q}": took[min(len(took) - 1, len(took) * q // 100)] * 1000 for q in (50, 99)}
    return {**at, "gets": len(took), "wrong": wrong, "rate": len(took) / seconds}


if __name__ == "__main__":
    url, keys, rate, seconds, connections = sys.argv[1:]
    print(json.dumps(asyncio.run(load(url, int(keys), float(rate), float(seconds), int(connections)))))
