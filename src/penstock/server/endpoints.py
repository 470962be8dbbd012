"""What a route is: an `Endpoint` is a value that the router, the guard and the OpenAPI document are made from.

Law: a handler sees nothing of HTTP but what its endpoint declares: path and query parameters, checked, and a body of a type.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from penstock.query.errors import BadRequestError

if TYPE_CHECKING:
    from penstock.server.served_jobs import ServedJobs

Role = Literal["anyone", "reader", "operator", "admin"]
ROLES: tuple[Role, ...] = ("anyone", "reader", "operator", "admin")
"""Each may do what those before it may."""

API = "/api/v1"

LARGEST_NUMBER = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks."""

    name: str
    role: Role

    def may(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A query parameter."""

    name: str
    about: str
    kind: Literal["text", "integer", "number", "flag"] = "text"
    least: float = 0
    most: float = LARGEST_NUMBER
    longest: int = 4096
    choices: tuple[str, ...] = ()

    def read(self, text: str) -> Any:
        """The value that a text stands for."""
        if self.kind == "flag":
            if text not in ("true", "false"):
                raise BadRequestError(f"{self.name} must be true or false")
            return text == "true"
        if self.kind == "text":
            if len(text) > self.longest:
                raise BadRequestError(f"{self.name} is longer than {self.longest} characters")
            if self.choices and text not in self.choices:
                raise BadRequestError(f"{self.name} must be one of {', '.join(self.choices)}")
            return text
        try:
            if not text.isascii() or "_" in text:
                raise ValueError
            value = int(text) if self.kind == "integer" else float(text)
        except ValueError:
            raise BadRequestError(f"{self.name} must be {'an integer' if self.kind == 'integer' else 'a number'}") from None
        if not self.least <= value <= self.most:
            raise BadRequestError(f"{self.name} must be between {self.least:g} and {self.most:g}")
        return value

    def schema(self) -> dict[str, Any]:
        if self.kind == "flag":
            return {"type": "boolean"}
        if self.kind == "text":
            return (
                {"type": "string", "enum": list(self.choices)} if self.choices else {"type": "string", "maxLength": self.longest}
            )
        return {"type": self.kind, "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request, as a handler sees it."""

    jobs: ServedJobs
    caller: Caller
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`body`: as JSON. `tag`: the ETag."""

    body: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    tag: str = ""
    content_type: str = "application/json"
    encoded: bytes | None = None
    """Instead of `body`: the bytes as they are."""


@dataclass(frozen=True, slots=True)
class Events:
    """Server-sent events, made as they are taken."""

    events: AsyncIterator[bytes]


Handler = Callable[[Call], Awaitable["Answer | Events"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A route. `answers`: the type of its answer's body; `body`: of the request's."""

    method: Literal["GET", "POST"]
    path: str
    """Below `root`, with parameters in braces."""
    name: str
    about: str
    handler: Handler
    role: Role = "reader"
    parameters: tuple[Parameter, ...] = ()
    body: type[msgspec.Struct] | None = None
    answers: Any = None
    content_type: str = "application/json"
    root: str = API
    errors: tuple[int, ...] = ()
    """Statuses of errors beside those that any route may answer."""

    def read_query(self, given: list[tuple[str, str]]) -> dict[str, Any]:
        """The query parameters; one that is unknown or there twice is refused."""
        known = {parameter.name: parameter for parameter in self.parameters}
        found: dict[str, Any] = {}
        for name, text in given:
            parameter = known.get(name)
            if parameter is None:
                raise BadRequestError(f"{name!r:.100} is not a parameter here", hint=f"known are: {', '.join(known) or 'none'}")
            if name in found:
                raise BadRequestError(f"{name} is given twice")
            found[name] = parameter.read(text)
        return found
