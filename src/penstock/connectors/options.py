"""Options of another system's client, with secrets by reference.

A value may contain `${env:NAME}` or `${file:PATH}`. The definition keeps the reference, so that no plan, manifest or log holds
the secret; it is looked up where the client is made, and looked up again when a new one is: so a rotated secret is found.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from penstock.diagnosis.redaction import MASK, is_secret_name, redact_text
from penstock.errors import ConfigError

_REFERENCE = re.compile(r"\$\{(?P<where>[a-z]+):(?P<what>[^}]*)\}")
_SECRET_KEYS = ("ssl.key.pem", "ssl.keystore.password", "ssl.key.password", "sasl.password", "sasl.oauthbearer.config")


def check_options(options: Mapping[str, str], what: str) -> None:
    """Refuse secrets that are written out, and references that are none."""
    for name, value in options.items():
        for reference in _REFERENCE.finditer(value):
            if reference["where"] not in ("env", "file") or not reference["what"]:
                raise ConfigError(
                    f"{what}: the option {name} has a reference that is not known: {reference[0]}",
                    hint="write ${env:NAME} for a variable of the environment, ${file:/path} for the contents of a file",
                )
        if is_secret(name) and not _REFERENCE.search(value):
            raise ConfigError(
                f"{what}: the option {name} is a secret, and is written out in the program",
                hint=f"name where it is: {name}=${{env:NAME}}, or ${{file:/path}}",
            )


def is_secret(name: str) -> bool:
    return name in _SECRET_KEYS or is_secret_name(name)


def resolved(options: Mapping[str, str], what: str) -> dict[str, str]:
    """The options with what their references stand for, as of now."""
    found = {}
    for name, value in options.items():
        text, *rest = _REFERENCE.split(value)  # text, where, what, text, where, what, ..., text
        references = zip(rest[0::3], rest[1::3], rest[2::3], strict=True)
        found[name] = text + "".join(_looked_up(where, place, name, what) + after for where, place, after in references)
    return found


def shown(options: Mapping[str, str]) -> dict[str, str]:
    """The options as they may be shown: references as they are, anything secret masked."""
    return {
        name: value if _REFERENCE.search(value) else MASK if is_secret(name) else redact_text(value)
        for name, value in options.items()
    }


def without_secrets(text: str, options: Mapping[str, str], resolved_options: Mapping[str, str]) -> str:
    """A message of another system's, without the values that references stood for."""
    for secret in _secrets(options, resolved_options):
        text = text.replace(secret, MASK)
    return redact_text(text)


def _secrets(options: Mapping[str, str], resolved_options: Mapping[str, str]) -> Iterable[str]:
    for name, value in options.items():
        found = resolved_options.get(name, "")
        if _REFERENCE.search(value) and len(found) >= 4:
            yield found


def _looked_up(where: str, place: str, name: str, what: str) -> str:
    if where == "env":
        value = os.environ.get(place)
        if value is None:
            raise ConfigError(
                f"{what}: the option {name} refers to the variable {place}, which is not set here",
                hint="set it for the driver and for the workers (spark.executorEnv.NAME), or use ${file:/path}",
            )
        return value
    try:
        return Path(place).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"{what}: the option {name} refers to the file {place}, which cannot be read"
        raise ConfigError(problem, detail=str(error)) from error
