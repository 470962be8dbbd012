"""The OpenAPI document against the server: what it generates is answered as it says, and never by a failure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from schemathesis.core.result import Ok

from penstock.server.openapi import openapi
from penstock.server.routes import ENDPOINTS
from tests.server.serving import asked
from tests.snapshots.shops import run_some

DOCUMENT = json.loads(json.dumps(openapi([one for one in ENDPOINTS if one.content_type == "application/json"])))
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS: list[Any] = [found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)]
NAMES = {"job": "shops", "step": "ledger", "state": "orders", "key": "shop-3"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    loop = asyncio.new_event_loop()
    context = asked(run_some(tmp_path_factory.mktemp("shops"), epochs=1, each=50))
    client = loop.run_until_complete(context.__aenter__())
    yield loop, client
    loop.run_until_complete(context.__aexit__(None, None, None))
    loop.close()


@pytest.mark.slow
@given(data=st.data())
def test_what_the_document_generates_is_answered_as_it_says(served: Any, data: st.DataObject) -> None:
    loop, client = served
    operation = data.draw(st.sampled_from(OPERATIONS))
    case = data.draw(operation.as_strategy())
    known = data.draw(st.booleans())
    names = {name: NAMES[name] if known and name in NAMES else str(value) for name, value in (case.path_parameters or {}).items()}
    path = operation.path
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    query = {name: value for name, value in (case.query or {}).items() if name != "wait"}
    body = case.body if isinstance(case.body, (dict, list, str, int, float, bool, type(None))) else None
    sends = {"json": body} if operation.method.upper() == "POST" else {}
    answer = loop.run_until_complete(client.request(operation.method, path, params=query, **sends))
    assert str(answer.status_code) in operation.definition.raw["responses"] or answer.status_code in (404, 405), answer.text
    assert answer.status_code < 500
    if answer.status_code != 304:
        assert answer.headers["content-type"].startswith("application/json")
