"""A local S3 server behind a proxy that can be told to be away, slow, or to lose replies; and a way around the proxy, to look.

| mode | what becomes of a request |
|---|---|
| `refused` | the connection is closed, nothing happens |
| `unavailable` | the answer is 503, nothing happens |
| `slow` | it is done `delay_s` later |
| `lost` | it is done; `share` of the replies are lost, half of them by a 500 |
"""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

Application = Callable[..., Iterable[bytes]]
Mode = Literal["", "refused", "unavailable", "slow", "lost"]

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass(frozen=True, slots=True)
class Trouble:
    mode: Mode = ""
    delay_s: float = 0.0
    share: float = 1.0


class OneAtATime:
    """The server itself: its conditional put checks, then writes."""

    def __init__(self, inner: Application) -> None:
        self._inner = inner
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        replies: list[tuple[Any, ...]] = []
        with self._lock:
            body = b"".join(self._inner(environ, lambda *reply: replies.append(reply)))
        start_response(*replies[0])
        return [body]


class Proxy:
    """Between the jobs and the server."""

    def __init__(self, inner: Application, seed: int) -> None:
        self._inner = inner
        self._chance = random.Random(seed)
        self.trouble = Trouble()
        self.troubled = 0
        """How many requests have suffered."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        trouble = self.trouble
        if trouble.mode:
            self.troubled += 1
        if trouble.mode == "refused":
            return _hung_up(environ, start_response)
        if trouble.mode == "unavailable":
            start_response("503 Service Unavailable", [])
            return []
        if trouble.mode == "slow":
            time.sleep(trouble.delay_s)
        replies: list[tuple[Any, ...]] = []
        body = self._inner(environ, lambda *reply: replies.append(reply))
        if trouble.mode == "lost" and self._chance.random() < trouble.share:
            if self._chance.random() < 0.5:
                return _hung_up(environ, start_response)
            start_response("500 Internal Server Error", [])
            return []
        start_response(*replies[0])
        return body


def _hung_up(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    start_response("200 OK", [])
    return []


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """`endpoint` is what jobs are told; `direct` has no faults."""

    proxy: Proxy
    endpoint: str
    direct: str
    bucket: str

    def uri(self, path: str, *, direct: bool = False) -> str:
        return f"s3://{self.bucket}/{path}?endpoint={self.direct if direct else self.endpoint}"

    def put(self, key: str, data: bytes) -> None:
        """An object of any name, by somebody else."""
        self._client().put_object(Bucket=self.bucket, Key=key, Body=data)

    def _client(self) -> Any:
        return boto3.client("s3", endpoint_url=self.direct)


@contextmanager
def object_store(seed: int) -> Iterator[ObjectStore]:
    """A server with one empty bucket."""
    server = OneAtATime(DomainDispatcherApplication(create_backend_app))
    proxy = Proxy(server, seed)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each request otherwise
    with ExitStack() as held:
        held.enter_context(_credentials())
        store = ObjectStore(
            proxy, held.enter_context(_served(proxy)), held.enter_context(_served(server)), f"torture-{uuid.uuid4()}"
        )
        store._client().create_bucket(Bucket=store.bucket)
        yield store
        proxy.trouble = Trouble()


@contextmanager
def _credentials() -> Iterator[None]:
    """In the environment of this process, which looks into the store as well."""
    before = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            os.environ.update({} if value is None else {name: value})


@contextmanager
def _served(application: Application) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
