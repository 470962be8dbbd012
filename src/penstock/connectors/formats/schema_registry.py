"""A schema registry with Confluent's interface (its own, Apicurio's `ccompat`, Karapace): schemas by id, ids of schemas.

What was found is kept: an id never means another schema. A registry that does not answer is no fault of the record whose
schema was asked for, so that is a `SourceError` that is tried again; an id that it does not know is.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from penstock.connectors.options import check_options, resolved
from penstock.errors import ConfigError, SourceError

_TIMEOUT_S = 10
_KEPT = 10_000
_TYPE = "application/vnd.schemaregistry.v1+json"


class UnknownSchemaError(ValueError):
    """The registry knows no schema of this id."""


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """Where it is. `options`: `basic.auth.user.info` (`user:password`) or `bearer.token`, by reference: `${env:…}`,
    `${file:…}`."""

    url: str
    _: KW_ONLY
    options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise ConfigError(f"the URL of a schema registry begins with http:// or https://, not {self.url!r}")
        if urlsplit(self.url).password:
            raise ConfigError(
                "the URL of the schema registry has a password in it",
                hint='options={"basic.auth.user.info": "${env:REGISTRY_LOGIN}"}',
            )
        check_options(self.options, "SchemaRegistry")
        for name in self.options:
            if name not in ("basic.auth.user.info", "bearer.token"):
                raise ConfigError(f"the schema registry has no option {name}", hint="basic.auth.user.info or bearer.token")

    def client(self) -> RegistryClient:
        return RegistryClient(self)


class RegistryClient:
    """Asks the registry, in the worker."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._schemas: dict[int, dict[str, Any]] = {}
        self._ids: dict[tuple[str, str], int] = {}

    def schema(self, id: int) -> dict[str, Any]:
        """What the registry says of an id: `schema`, and `schemaType` unless it is Avro."""
        found = self._schemas.get(id)
        if found is None:
            if len(self._schemas) >= _KEPT:
                self._schemas.clear()
            found = self._schemas[id] = self._ask(
                f"/schemas/ids/{id}", missing=UnknownSchemaError(f"the schema registry knows no schema {id}")
            )
        return found

    def register(self, subject: str, schema: str, kind: str = "AVRO") -> int:
        """The id of a schema, which is new to the registry, or known."""
        found = self._ids.get((subject, schema))
        if found is None:
            said = self._ask(f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema, "schemaType": kind})
            found = self._ids[subject, schema] = int(said["id"])
        return found

    def _ask(self, path: str, body: Mapping[str, Any] | None = None, *, missing: Exception | None = None) -> dict[str, Any]:
        registry = self._registry
        request = urllib.request.Request(registry.url.rstrip("/") + path, headers={"Accept": _TYPE})
        secrets = resolved(registry.options, "SchemaRegistry")
        if login := secrets.get("basic.auth.user.info"):
            request.add_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
        elif token := secrets.get("bearer.token"):
            request.add_header("Authorization", f"Bearer {token}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", _TYPE)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                said: dict[str, Any] = json.load(answer)
                return said
        except urllib.error.HTTPError as error:
            if error.code == 404 and missing is not None:
                raise missing from None
            detail = error.read(500).decode(errors="replace")
            nature = "configuration" if error.code in (401, 403, 409, 422) else "transient"
            raise SourceError(f"the schema registry refused {path}: {error.code}", detail=detail, nature=nature) from None  # type: ignore[arg-type]
        except (OSError, ValueError) as error:
            raise SourceError(
                f"the schema registry {registry.url} does not answer",
                detail=str(error),
                hint="it is asked again",
                nature="transient",
            ) from error
