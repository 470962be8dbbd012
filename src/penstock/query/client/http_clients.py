"""`Client` and `AsyncClient`: queries over HTTP, typed by the states that programs declare."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import ConfigError
from penstock.query.client.attempts import Attempts, Failure, Reply, Send, Wait, attempts
from penstock.query.client.decoding import Answered, Event
from penstock.query.client.requests import (
    API,
    Asked,
    EventLines,
    ReplicaRange,
    Session,
    asked_changes,
    asked_entries,
    asked_many,
    asked_value,
    key_text,
    problem_of,
    value_of,
    values_of,
)
from penstock.query.errors import QueryError, RestoringError
from penstock.state.descriptors import State
from penstock.state.encoding.keys import encode_key
from penstock.state.key_groups import KeyGroups

if TYPE_CHECKING:
    import httpx


class _Knows:
    """What both clients know of servers and jobs."""

    def __init__(
        self, urls: str | Sequence[str], *, token: str | None = None, retry_s: float = 30.0, timeout_s: float = 75.0
    ) -> None:
        try:
            import httpx
        except ImportError:
            raise ConfigError("httpx cannot be imported", hint="pip install 'penstock[server]'") from None
        self._httpx = httpx
        self._urls = [urls] if isinstance(urls, str) else list(urls)
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._timeout = httpx.Timeout(timeout_s, connect=5.0)
        self._retry_s = retry_s
        self._session = Session()
        self._servers: dict[str, tuple[list[ReplicaRange], KeyGroups | None]] = {}

    def _known(self, job: str) -> tuple[list[ReplicaRange], KeyGroups | None]:
        return self._servers.get(job, ([ReplicaRange(url=url) for url in self._urls], None))

    def _learn(self, job: str, told: list[tuple[str, dict[str, Any]]]) -> None:
        """Which server has which key groups."""
        servers = []
        groups = None
        for url, shown in told:
            has = shown.get("key_groups")
            servers.append(ReplicaRange(url=url, groups=None if has is None else range(has[0], has[1] + 1)))
            if shown.get("max_parallelism"):
                groups = KeyGroups(shown["max_parallelism"], shown["key_hash"])
        self._servers[job] = servers, groups

    def _attempts(self, job: str, asked: Asked, key: Any = None, *, repeatable: bool = True) -> Attempts:
        servers, groups = self._known(job)
        group = None if groups is None or key is None else groups.of(encode_key(key))
        return attempts(servers, asked, group=group, retry_s=self._retry_s, repeatable=repeatable)

    def _reply(self, response: httpx.Response) -> Reply:
        after = response.headers.get("retry-after", "")
        wait_s = float(after) if after.isdigit() else None
        return Reply(response.status_code, response.content, response.headers.get("content-type", ""), wait_s)

    def _value(self, job: str, reply: Reply, declared: State | None) -> Answered[Any]:
        found = value_of(reply.data, reply.content_type, declared)
        self._session.saw(job, found.epoch)
        return found


class Client(_Knows):
    """Asks servers for state. Several URLs: replicas that have some key groups each, or servers that stand in for each other.

    `retry_s`: how long it asks again while servers are away or restore; `token`: what they know this client by. Not for several
    threads at once.
    """

    def __init__(
        self, urls: str | Sequence[str], *, token: str | None = None, retry_s: float = 30.0, timeout_s: float = 75.0
    ) -> None:
        super().__init__(urls, token=token, retry_s=retry_s, timeout_s=timeout_s)
        self._http = self._httpx.Client(headers=self._headers, timeout=self._timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def get(
        self,
        job: str,
        step: str,
        state: str,
        key: Any,
        declared: State | None = None,
        *,
        at: int | None = None,
        least: int | None = None,
        wait: float | None = None,
    ) -> Answered[Any]:
        """What a state keeps for a key.

        `declared`: the state as the program declares it. The value is of its type then, and for a key that nothing is kept for it
        is what the state would give. Otherwise it is as JSON has it, and such a key is an error.
        """
        query = self._session.consistency(job, at, least, wait)
        asked = asked_value(job, step, state, key, query, raw=declared is not None)
        return self._value(job, self._run(self._routed(job, asked, key)), declared)

    def get_many(
        self,
        job: str,
        step: str,
        state: str,
        keys: Sequence[Any],
        *,
        at: int | None = None,
        least: int | None = None,
        wait: float | None = None,
    ) -> Answered[list[Any]]:
        """What a state keeps for several keys, at one epoch, in their order; None where nothing is."""
        query = self._session.consistency(job, at, least, wait)
        found = values_of(self._run(self._attempts(job, asked_many(job, step, state, keys, query))).data)
        self._session.saw(job, found.epoch)
        return found

    def entries(self, job: str, step: str, state: str, **query: Any) -> Iterator[dict[str, Any]]:
        """All entries of a state, or those of a range of keys (`from_=`, `to=`) or with a
        prefix; each page of the newest epoch, unless `at=` says of which."""
        given = {name.rstrip("_"): str(value) for name, value in query.items()}
        while True:
            body = msgspec.json.decode(self._run(self._attempts(job, asked_entries(job, step, state, given))).data)
            yield from body["entries"]
            if body["next"] is None:
                return
            given["after"] = body["next"]

    def subscribe(
        self, job: str, step: str, state: str | None = None, key: Any = None, *, after: int | None = None
    ) -> Iterator[Event]:
        """What epochs change, without an end; goes on where it was when the server was away. `after`: begin behind this epoch."""
        while True:
            asked = _asked_changes(job, step, state, key, after)
            try:
                for event in self._events(asked):
                    after = event.epoch if not event.data.get("more") else after
                    self._session.saw(job, event.epoch)
                    yield event
            except RestoringError:
                pass
            time.sleep(0.2)

    def show(self, path: str) -> Any:
        """Something else of the API, such as `jobs/shop/steps`."""
        return msgspec.json.decode(self._run(self._attempts("", Asked(path=f"{API}/{path}"))).data)

    def ask(self, job: str, what: str, **options: Any) -> dict[str, Any]:
        """Ask for `savepoints`, `stop` or `rescale`, and wait for the answer."""
        asked = Asked(path=f"{API}/jobs/{job}/{what}", method="POST", body=options)
        told = msgspec.json.decode(self._run(self._attempts(job, asked, repeatable=False)).data)
        while told["condition"] == "running":
            time.sleep(0.1)
            told = self.show(f"jobs/{job}/requests/{told['id']}")
        if told["condition"] == "failed":
            raise QueryError(told["message"], hint=told["hint"])
        return dict(told["result"])

    def _routed(self, job: str, asked: Asked, key: Any) -> Attempts:
        if len(self._urls) > 1 and job not in self._servers:
            told = []
            for url in self._urls:
                reply = self._send(Send(url, Asked(path=f"{API}/jobs/{job}")))
                if isinstance(reply, Failure) or reply.status >= 400:
                    break
                told.append((url, msgspec.json.decode(reply.data)))
            else:
                self._learn(job, told)
        return self._attempts(job, asked, key)

    def _run(self, trying: Attempts) -> Reply:
        result: Reply | Failure | None = None
        while True:
            try:
                wanted = trying.send(result)
            except StopIteration as end:
                done: Reply = end.value
                return done
            if isinstance(wanted, Wait):
                time.sleep(wanted.seconds)
                result = None
            else:
                result = self._send(wanted)

    def _send(self, wanted: Send) -> Reply | Failure:
        asked = wanted.asked
        headers = {"accept": asked.accept}
        try:
            return self._reply(
                self._http.request(asked.method, wanted.url + asked.path, params=asked.query, json=asked.body, headers=headers)
            )
        except self._httpx.TransportError as error:
            return Failure(str(error) or type(error).__name__)

    def _events(self, asked: Asked) -> Iterator[Event]:
        lines = EventLines()
        try:
            with self._http.stream("GET", self._urls[0] + asked.path, params=asked.query, timeout=30.0) as response:
                if response.status_code != 200:
                    raise problem_of(response.status_code, response.read())
                for line in response.iter_lines():
                    event = lines.take(line)
                    if event is not None:
                        yield event
        except self._httpx.TransportError:
            return


class AsyncClient(_Knows):
    """`Client`, for asyncio."""

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        token: str | None = None,
        retry_s: float = 30.0,
        timeout_s: float = 75.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(urls, token=token, retry_s=retry_s, timeout_s=timeout_s)
        self._http = self._httpx.AsyncClient(headers=self._headers, timeout=self._timeout, transport=transport)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def get(
        self,
        job: str,
        step: str,
        state: str,
        key: Any,
        declared: State | None = None,
        *,
        at: int | None = None,
        least: int | None = None,
        wait: float | None = None,
    ) -> Answered[Any]:
        """As `Client.get`."""
        query = self._session.consistency(job, at, least, wait)
        asked = asked_value(job, step, state, key, query, raw=declared is not None)
        return self._value(job, await self._run(self._attempts(job, asked, key)), declared)

    async def get_many(
        self,
        job: str,
        step: str,
        state: str,
        keys: Sequence[Any],
        *,
        at: int | None = None,
        least: int | None = None,
        wait: float | None = None,
    ) -> Answered[list[Any]]:
        """As `Client.get_many`."""
        query = self._session.consistency(job, at, least, wait)
        found = values_of((await self._run(self._attempts(job, asked_many(job, step, state, keys, query)))).data)
        self._session.saw(job, found.epoch)
        return found

    async def subscribe(
        self, job: str, step: str, state: str | None = None, key: Any = None, *, after: int | None = None
    ) -> AsyncIterator[Event]:
        """As `Client.subscribe`."""
        while True:
            lines = EventLines()
            asked = _asked_changes(job, step, state, key, after)
            try:
                async with self._http.stream("GET", self._urls[0] + asked.path, params=asked.query, timeout=30.0) as response:
                    if response.status_code != 200:
                        raise problem_of(response.status_code, await response.aread())
                    async for line in response.aiter_lines():
                        event = lines.take(line)
                        if event is not None:
                            after = event.epoch if not event.data.get("more") else after
                            self._session.saw(job, event.epoch)
                            yield event
            except (self._httpx.TransportError, RestoringError):
                pass
            await asyncio.sleep(0.2)

    async def show(self, path: str) -> Any:
        """As `Client.show`."""
        return msgspec.json.decode((await self._run(self._attempts("", Asked(path=f"{API}/{path}")))).data)

    async def _run(self, trying: Attempts) -> Reply:
        result: Reply | Failure | None = None
        while True:
            try:
                wanted = trying.send(result)
            except StopIteration as end:
                done: Reply = end.value
                return done
            if isinstance(wanted, Wait):
                await asyncio.sleep(wanted.seconds)
                result = None
                continue
            asked = wanted.asked
            headers = {"accept": asked.accept}
            try:
                sent = self._http.request(
                    asked.method, wanted.url + asked.path, params=asked.query, json=asked.body, headers=headers
                )
                result = self._reply(await sent)
            except self._httpx.TransportError as error:
                result = Failure(str(error) or type(error).__name__)


def _asked_changes(job: str, step: str, state: str | None, key: Any, after: int | None) -> Asked:
    query = {} if state is None else {"state": state}
    if key is not None:
        query["key"] = key_text(key)
    if after is not None:
        query["from"] = str(after)
    return asked_changes(job, step, query)
