"""How Kafka clients are made: the package is asked for when it is needed, and secrets are looked up then."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.connectors.installed import needed
from penstock.connectors.options import check_options, resolved, without_secrets
from penstock.errors import ConfigError, Nature, PenstockError

Options = Mapping[str, str]

_OURS = {
    "bootstrap.servers": "bootstrap=",
    "group.id": "group=",
    "isolation.level": "isolation=",
    "enable.auto.commit": "",
    "enable.partition.eof": "",
    "auto.offset.reset": "start=",
    "transactional.id": "",
    "enable.idempotence": "",
}
"""Options of the client that we set, and what says it instead."""

_QUIET = "2"
"""What goes wrong is told by our errors; librdkafka writes it to the terminal again and again."""

_CONFIGURATION = {
    "_AUTHENTICATION",
    "SASL_AUTHENTICATION_FAILED",
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "UNSUPPORTED_SASL_MECHANISM",
    "_INVALID_ARG",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
    "UNKNOWN_TOPIC_OR_PART",
    "MSG_SIZE_TOO_LARGE",
    "INVALID_TOPIC_EXCEPTION",
}
"""Errors that trying again does not mend."""


def client_library(what: str) -> Any:
    return needed("confluent_kafka", "penstock[kafka]", what)


def admin_library(what: str) -> Any:
    return needed("confluent_kafka.admin", "penstock[kafka]", what)


def checked_options(options: Options, what: str) -> dict[str, str]:
    """A copy of the options of a definition; refused if they have secrets in them, or what we set."""
    given = {str(name): _text(value) for name, value in options.items()}
    for name in given:
        if name in _OURS:
            hint = f"use {_OURS[name]}" if _OURS[name] else "it is set for what is guaranteed"
            raise ConfigError(f"{what}: the option {name} is not yours to set", hint=hint)
    check_options(given, what)
    return given


def checked_bootstrap(bootstrap: str, what: str) -> None:
    if not bootstrap.strip() or "@" in bootstrap:
        raise ConfigError(f"{what}: bootstrap={bootstrap!r} is not valid", hint='give host:port, or several: "one:9092,two:9092"')


def configuration(bootstrap: str, options: Options, what: str, **settings: object) -> dict[str, str]:
    """Of a client: what we set, the options with what they refer to. `settings`: with `_` for `.`; options win."""
    ours = {name.replace("_", "."): _text(value) for name, value in settings.items()}
    return {"log_level": _QUIET, **ours, **resolved(options, what), "bootstrap.servers": bootstrap}


def named(error: BaseException) -> str:
    """The name of the error code that Kafka's library raised; nothing if it is another error."""
    code = error.args[0] if error.args else None
    name = getattr(code, "name", None)
    return str(name()) if callable(name) else ""


def nature_of(name: str) -> Nature:
    return "configuration" if name in _CONFIGURATION else "transient"


def failure(
    kind: type[PenstockError], what: str, error: BaseException, bootstrap: str, options: Options, *, hint: str = ""
) -> PenstockError:
    """An error of ours that says what Kafka said, without any secret."""
    try:
        values: Mapping[str, str] = resolved(options, what)
    except ConfigError:
        values = {}
    said = without_secrets(str(error), options, values)
    return kind(what, detail=f"{bootstrap}: {said}", hint=hint, nature=nature_of(named(error)))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
