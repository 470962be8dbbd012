"""How connections are made: the package is asked for when it is needed, secrets are looked up then, and errors are told apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.connectors.installed import needed
from penstock.connectors.options import check_options, resolved, without_secrets
from penstock.errors import ConfigError, Nature, PenstockError

if TYPE_CHECKING:
    import psycopg

Options = Mapping[str, str]

_PASSWORD = re.compile(r"^\w+://[^/@]*:[^/@]*@|(?:^|[\s?&])(?:ssl)?password\s*=", re.IGNORECASE)
_PASSING = ("08", "40", "53", "57", "58", "55P03", "25P03", "42P07")
"""Classes and codes of errors that may pass by themselves: connections, conflicts, resources, a server that stops, locks."""

_DEFAULTS = {
    "connect_timeout": 10,
    "application_name": "penstock",
    "keepalives_idle": 30,
    "tcp_user_timeout": 60_000,  # ms; a host that is gone is noticed
}


def checked_address(dsn: str, options: Options, what: str) -> dict[str, str]:
    """A copy of the options; refused if there is a secret in them or in the address."""
    if not dsn.strip() or "\0" in dsn:
        raise ConfigError(f"{what}: dsn={dsn!r} is not valid", hint='give an address: "postgresql://user@host:5432/database"')
    if _PASSWORD.search(dsn):
        raise ConfigError(
            f"{what}: there is a password in the address",
            hint='leave it out, and name where it is: options={"password": "${env:PGPASSWORD}"}, or ${file:/path}',
        )
    given = {str(name): str(value) for name, value in options.items()}
    check_options(given, what)
    return given


def connect(dsn: str, options: Options, what: str, **settings: Any) -> psycopg.Connection[Any]:
    """A connection with what the options refer to. `settings`: of libpq; options win."""
    library = needed("psycopg", "penstock[postgres]", what)
    settings = {**_DEFAULTS, **settings, **resolved(options, what)}
    connection: psycopg.Connection[Any] = library.connect(dsn, **settings)
    return connection


def passes(error: BaseException | None) -> bool:
    """May it go well when it is tried again?"""
    state = getattr(error, "sqlstate", None)
    if state is None:
        return type(error).__name__ in ("OperationalError", "InterfaceError", "ConnectionTimeout")
    if state == "23505":  # two that created a table at the same time
        return str(getattr(getattr(error, "diag", None), "table_name", "")).startswith("pg_")
    return str(state).startswith(_PASSING)


def failure(
    kind: type[PenstockError], what: str, error: BaseException, told: tuple[str, Options], *, hint: str = ""
) -> PenstockError:
    """An error of ours that says what PostgreSQL said, without any secret. `told`: what we wrote to, and the options."""
    about, options = told
    try:
        values: Options = resolved(options, what)
    except ConfigError:
        values = {}
    said = without_secrets(str(error).strip(), options, values)
    nature: Nature = "transient" if passes(error) else "configuration"
    return kind(what, detail=f"{about}\n{said}", hint=hint, nature=nature)
