"""The OpenAPI document, made from the endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec

import penstock
from penstock.server.endpoints import Endpoint
from penstock.server.problems import ProblemAnswer

ALWAYS = (400, 401, 403, 404, 429, 503)
_TEMPLATE = "#/components/schemas/{name}"
_PARAMETER = re.compile(r"{(\w+)(?::path)?}")


def openapi(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    endpoints = tuple(endpoints)
    types = [kind for one in endpoints for kind in (one.answers, one.body) if kind is not None]
    _, components = msgspec.json.schema_components([*types, ProblemAnswer], ref_template=_TEMPLATE)
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        path = _PARAMETER.sub(r"{\1}", one.root + one.path)
        paths.setdefault(path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": penstock.__version__, "description": "Committed state of streaming jobs."},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in _PARAMETER.findall(endpoint.path)
    ]
    parameters += [
        {"name": one.name, "in": "query", "required": False, "description": one.about, "schema": one.schema()}
        for one in endpoint.parameters
    ]
    answer: dict[str, Any] = {"description": "the answer"}
    if endpoint.answers is not None:
        answer["content"] = {endpoint.content_type: {"schema": _schema(endpoint.answers)}}
    elif endpoint.content_type != "application/json":
        answer["content"] = {endpoint.content_type: {"schema": {"type": "string"}}}
    responses: dict[str, Any] = {"202" if 202 in endpoint.errors else "200": answer}
    for status in sorted({*ALWAYS, *endpoint.errors, *((408, 411, 413, 415) if endpoint.body else ())} - {202}):
        text = {"description": HTTPStatus(status).phrase}
        responses[str(status)] = (
            text if status == 304 else {**text, "content": {"application/json": {"schema": _schema(ProblemAnswer)}}}
        )
    found: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.about,
        "description": f"Role: {endpoint.role}.",
        "parameters": parameters,
        "responses": responses,
    }
    if endpoint.body is not None:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": _schema(endpoint.body)}}}
    return found


def _schema(kind: Any) -> dict[str, Any]:
    (found,), _ = msgspec.json.schema_components([kind], ref_template=_TEMPLATE)
    return found
