"""The server, from its table of routes: who may ask what, and what comes of requests that nobody sends in good faith."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigError
from penstock.query.catalog import Access
from penstock.server.endpoints import API, ROLES, Caller, Endpoint
from penstock.server.guard.audit import Audit
from penstock.server.guard.hosts import check_binding
from penstock.server.guard.limits import Limits, Rates
from penstock.server.guard.tokens import Tokens, read_tokens
from penstock.server.openapi import openapi
from penstock.server.routes import ENDPOINTS
from penstock.server.served_jobs import Sources
from penstock.server.serving import Server, ServerSettings
from tests.server.serving import ask, asked
from tests.snapshots.shops import run_some

TOKENS: dict[str, str] = {role: f"{role}-0123456789abcdef" for role in ROLES if role != "anyone"}
VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
CHANGE_SOMETHING = ("stop_job", "rescale_job", "make_savepoint")
PLACES = {"job": "shops", "step": "ledger", "state": "orders", "key": "shop-3", "id": "0" * 32, "source": "orders"}


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_some(tmp_path_factory.mktemp("shops"), epochs=1, each=50)


@pytest.fixture
def tokens() -> Tokens:
    return read_tokens(None, ";".join(f"{role} {token} {role}" for role, token in TOKENS.items()))


def path_of(endpoint: Endpoint, **places: str) -> str:
    given = {**PLACES, **places}
    return endpoint.root + re.sub(r"{(\w+)(?::path)?}", lambda match: given[match[1]], endpoint.path)


def body_of(endpoint: Endpoint) -> Any:
    bodies = {"read_keys": {"keys": ["shop-3"]}, "rescale_job": {"parallelism": 2}, "append_records": {"records": [{}]}}
    return bodies.get(endpoint.name, {})


def endless(endpoint: Endpoint) -> bool:
    return endpoint.content_type == "text/event-stream"


def check_sound(answer: httpx.Response, folder: str) -> None:
    """No failure, nothing of what is inside, and headers that keep browsers from doing anything with it."""
    assert answer.status_code < 500 or (answer.status_code == 503 and answer.headers["retry-after"]), answer.text
    assert "Traceback" not in answer.text
    assert folder not in answer.text
    assert not any(token in answer.text for token in TOKENS.values())
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in answer.headers
    if answer.status_code >= 400 and answer.request.method != "HEAD":
        assert set(answer.json()["error"]) == {"code", "message", "detail", "hint"}


def test_every_route_and_verb_asks_for_a_token_and_its_role(storage: str, tokens: Tokens) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for endpoint in ENDPOINTS:
            for verb in VERBS:
                for role in (None, "wrong", *TOKENS):
                    token = TOKENS.get(role or "", "wrong-0123456789abcdef")
                    headers = {} if role is None else {"authorization": f"Bearer {token}"}
                    right = verb in verbs_of(endpoint)
                    allowed = role in TOKENS and Caller(name="", role=role).may(endpoint.role)  # type: ignore[arg-type]
                    if (
                        right
                        and allowed
                        and (endless(endpoint) or endpoint.name in ("stop_job", "rescale_job", "make_savepoint"))
                    ):
                        continue
                    answer = await client.request(verb, path_of(endpoint), headers=headers, json=body_of(endpoint))
                    check_sound(answer, storage)
                    if role is None or role == "wrong":
                        assert answer.status_code == 401, (endpoint.name, verb)
                        assert answer.headers["www-authenticate"] == "Bearer"
                    elif not right:
                        other = any(verb in verbs_of(one) and path_matches(one, path_of(endpoint)) for one in ENDPOINTS)
                        assert other or answer.status_code == 405, (endpoint.name, verb)
                    elif not allowed:
                        assert answer.status_code == 403, (endpoint.name, verb, role)
                    else:
                        assert answer.status_code in (200, 202, 400, 404), (endpoint.name, verb, answer.text)

    ask(work, storage, tokens=tokens)


def verbs_of(endpoint: Endpoint) -> tuple[str, ...]:
    return ("GET", "HEAD") if endpoint.method == "GET" else (endpoint.method,)


def path_matches(endpoint: Endpoint, path: str) -> bool:
    pattern = re.sub(r"{(\w+):path}", ".*", endpoint.path)
    return re.fullmatch(endpoint.root + re.sub(r"{(\w+)}", "[^/]+", pattern), path) is not None


def test_draining_takes_the_role_admin(storage: str, tokens: Tokens) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        headers = {"authorization": f"Bearer {TOKENS['operator']}"}
        answer = await client.post(f"{API}/jobs/shops/stop", json={"drain": True}, headers=headers)
        assert answer.status_code == 403

    ask(work, storage, tokens=tokens)


def test_without_tokens_nobody_controls_a_job(storage: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for endpoint in ENDPOINTS:
            if endpoint.role != "reader":
                answer = await client.request(endpoint.method, path_of(endpoint), json=body_of(endpoint))
                assert answer.status_code == 403

    ask(work, storage)


def test_an_operator_makes_a_savepoint(storage: str, tokens: Tokens) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        headers = {"authorization": f"Bearer {TOKENS['operator']}"}
        told = (await client.post(f"{API}/jobs/shops/savepoints", json={}, headers=headers)).json()
        while told["condition"] == "running":
            await asyncio.sleep(0.02)
            told = (await client.get(f"{API}/jobs/shops/requests/{told['id']}", headers=headers)).json()
        assert told["condition"] == "done", told
        assert Path(told["result"]["uri"].removeprefix("file://")).is_relative_to(storage)
        told = (await client.post(f"{API}/jobs/shops/stop", json={"timeout": 1}, headers=headers)).json()
        while told["condition"] == "running":
            await asyncio.sleep(0.02)
            told = (await client.get(f"{API}/jobs/shops/requests/{told['id']}", headers=headers)).json()
        assert told["condition"] == "failed"  # nobody drives it
        refused = await client.post(f"{API}/jobs/shops/savepoints", json={"to": "/tmp/elsewhere"}, headers=headers)
        assert refused.status_code == 400

    ask(work, storage, tokens=tokens)


TRAVERSALS = [
    "../../job.json",
    "..%2f..%2fjob.json",
    "%2e%2e/%2e%2e/etc/passwd",
    "/etc/passwd",
    "%00",
    "\\..\\x",
    "a" * 5000,
    "%ff%fe",
    "{}",
    "$(id)",
    "' OR 1=1",
]


@pytest.mark.parametrize("part", ["job", "step", "state", "key", "id"])
def test_names_lead_nowhere(storage: str, part: str) -> None:
    """A name is looked up among those that are there, and is no path, expression or command."""

    async def work(client: httpx.AsyncClient) -> None:
        for endpoint in ENDPOINTS:
            if f"{{{part}" not in endpoint.path or endless(endpoint):
                continue
            for name in TRAVERSALS:
                for spelled in (name, quote(name, safe="")):
                    answer = await client.request(endpoint.method, path_of(endpoint, **{part: spelled}), json=body_of(endpoint))
                    check_sound(answer, storage)
                    assert answer.status_code in (200, 400, 403, 404, 405)
                    assert "root:" not in answer.text

    ask(work, storage)


@given(data=st.binary(max_size=60), query=st.text(max_size=30))
def test_bodies_and_queries_that_are_malformed(malformed: Any, data: bytes, query: str) -> None:
    loop, client, folder = malformed

    async def work() -> None:
        answer = await client.post(
            f"{API}/jobs/shops/steps/ledger/state/orders/keys", content=data, headers={"content-type": "application/json"}
        )
        check_sound(answer, folder)
        assert answer.status_code in (200, 400)
        answer = await client.get(f"{API}/jobs/shops/steps/ledger/entries/orders?{quote(query, safe='=&')}")
        check_sound(answer, folder)
        assert answer.status_code in (200, 400)

    loop.run_until_complete(work())


@pytest.fixture(scope="module")
def malformed(storage: str) -> Iterator[Any]:
    loop = asyncio.new_event_loop()
    context = asked(storage)
    client = loop.run_until_complete(context.__aenter__())
    yield loop, client, storage
    loop.run_until_complete(context.__aexit__(None, None, None))
    loop.close()


def test_bodies_of_other_types_and_sizes(storage: str) -> None:
    url = f"{API}/jobs/shops/steps/ledger/state/orders/keys"

    async def work(client: httpx.AsyncClient) -> None:
        assert (await client.post(url, content=b"{}", headers={"content-type": "text/plain"})).status_code == 415
        assert (await client.post(url, content=b"keys=1")).status_code == 415
        large = json.dumps({"keys": ["x" * 2000]}).encode()
        assert (await client.post(url, content=large, headers={"content-type": "application/json"})).status_code == 413

        async def parts() -> Any:
            for _ in range(3):
                yield b" " * 400

        answer = await client.post(url, content=parts(), headers={"content-type": "application/json"})
        assert answer.status_code == 413
        deep = b'{"keys":' + b"[" * 900 + b"]" * 900 + b"}"
        answer = await client.post(url, content=deep[:1000], headers={"content-type": "application/json"})
        check_sound(answer, storage)

    ask(work, storage, limits=Limits(body_bytes=1000))


def test_a_slow_body(storage: str) -> None:
    url = f"{API}/jobs/shops/steps/ledger/state/orders/keys"

    async def work(client: httpx.AsyncClient) -> None:
        async def parts() -> Any:
            yield b"{"
            await asyncio.sleep(0.3)
            yield b"}"

        answer = await client.post(url, content=parts(), headers={"content-type": "application/json"})
        assert answer.status_code in (400, 408)

    ask(work, storage, limits=Limits(body_s=0.05))


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "attacker.example"},
        {"host": "localhost.attacker.example"},
        {"host": ""},
        {"origin": "https://attacker.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_other_hosts_and_sites_get_nothing(storage: str, headers: dict[str, str]) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for path in (f"{API}/jobs", f"{API}/openapi.json", "/"):
            answer = await client.get(path, headers=headers)
            check_sound(answer, storage)
            assert answer.status_code == 403
        preflight = await client.options(
            f"{API}/jobs", headers={"origin": "https://a.example", "access-control-request-method": "GET"}
        )
        assert preflight.status_code == 403
        assert (
            await client.get(f"{API}/jobs", headers={"origin": "http://localhost", "sec-fetch-site": "same-origin"})
        ).is_success

    ask(work, storage)


def test_too_many_requests(storage: str) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        answers = [await client.get(f"{API}/openapi.json") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429, 429]
        assert int(answers[-1].headers["retry-after"]) >= 1

    ask(work, storage, limits=Limits(rate=0.01, burst=3))


def test_buckets_fill_again() -> None:
    now = 0.0
    rates = Rates(2.0, 2, lambda: now)
    assert [rates.wait_s("a") > 0 for _ in range(3)] == [False, False, True]
    assert rates.wait_s("b") == 0
    now = 0.5
    assert [rates.wait_s("a") > 0 for _ in range(2)] == [False, True]


def test_what_is_noted(storage: str, tokens: Tokens, tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    audit = Audit(str(file))

    async def work(client: httpx.AsyncClient) -> None:
        await client.get(f"{API}/jobs", headers={"authorization": f"Bearer {TOKENS['reader']}"})
        await client.get(f"{API}/jobs%1b%5B2J", headers={"authorization": "Bearer wrong-0123456789abcdef"})
        await client.post(
            f"{API}/jobs/shops/stop", json={"timeout": 0}, headers={"authorization": f"Bearer {TOKENS['operator']}"}
        )

    ask(work, storage, tokens=tokens, audit=audit)
    audit.close()
    text = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert "\x1b" not in text
    assert "wrong-0123456789abcdef" not in text
    assert not any(token in text for token in TOKENS.values())
    lines = [json.loads(line) for line in text.splitlines()]
    assert [(line["caller"], line["status"]) for line in lines] == [("", 401), ("operator", 202)]


def test_a_public_address_takes_a_token() -> None:
    for host in ("0.0.0.0", "::", "10.0.0.1", "example.org"):
        with pytest.raises(ConfigError, match="whoever reaches it"):
            check_binding(host, has_tokens=False)
        check_binding(host, has_tokens=True)
    for host in ("127.0.0.1", "::1", "localhost"):
        check_binding(host, has_tokens=False)


def test_tokens_are_private(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"reader {TOKENS['reader']}  # the dashboard\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="others can read it"):
        read_tokens(str(file), None)
    file.chmod(0o600)
    tokens = read_tokens(str(file), None)
    assert TOKENS["reader"] not in repr(vars(tokens))
    assert tokens.caller(f"Bearer {TOKENS['reader']}").role == "reader"
    for wrong in ("reader short", "anyone 0123456789abcdef", "root 0123456789abcdef", "reader"):
        with pytest.raises(ConfigError, match="is no token") as error:
            read_tokens(None, wrong)
        assert "0123456789abcdef" not in str(error.value)


@pytest.fixture(scope="module")
def served(storage: str) -> Iterator[tuple[str, int]]:
    sources = Sources(storages=(storage,), access=Access(all_states=True))
    server = Server(ServerSettings(sources=sources, port=0, limits=Limits(head_s=0.5, head_bytes=4000, body_s=0.5)))
    server.start()
    host, _, port = server.url.removeprefix("http://").partition(":")
    yield host, int(port)
    server.stop()


def exchange(served: tuple[str, int], *parts: bytes, pause: float = 0.0) -> bytes:
    with socket.create_connection(served, timeout=10) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        found = b""
        try:
            while data := connection.recv(65536):
                found += data
        except (ConnectionResetError, TimeoutError):
            pass
        return found


def test_slow_and_large_heads_end_the_connection(served: tuple[str, int]) -> None:
    assert exchange(served, b"GET / HTTP/1.1\r\nhost: localhost\r\n").startswith(b"HTTP/1.1 408")
    assert exchange(served).startswith(b"HTTP/1.1 408")
    large = b"".join(b"x-%d: %s\r\n" % (n, b"y" * 500) for n in range(20))
    assert b" 431 " in exchange(served, b"GET / HTTP/1.1\r\nhost: localhost\r\n" + large, b"z: 1\r\n")
    close = b"connection: close\r\n\r\n"
    assert exchange(served, b"GET /api/v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n" + close).startswith(b"HTTP/1.1 200")
    body = (
        b"POST /api/v1/jobs/shops/stop HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 10\r\n"
        + close
    )
    assert exchange(served, body, b"{").startswith(b"HTTP/1.1 403")
    assert exchange(served, b"\x16\x03\x01 no http at all\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert b"uvicorn" not in exchange(served, b"GET / HTTP/1.1\r\nhost: localhost\r\n" + close).lower()


def test_the_document_says_what_every_route_takes() -> None:
    document = openapi(ENDPOINTS)
    assert document["openapi"] == "3.1.0"
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert {one["operationId"] for one in operations} == {endpoint.name for endpoint in ENDPOINTS}
    for one in operations:
        assert {"400", "401", "403", "404", "429", "503"} <= set(one["responses"])
