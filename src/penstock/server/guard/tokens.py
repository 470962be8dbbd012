"""Bearer tokens and their roles.

A file has a line for each token: `ROLE TOKEN [NAME]`, with `#` before remarks. In `$PENSTOCK_SERVE_TOKENS` semicolons part them.

Laws:
- A token is compared by its digest, in constant time; it is never logged or shown.
- A file that others can read is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from typing import get_args

from penstock.errors import ConfigError
from penstock.query.errors import UnauthorizedError
from penstock.server.endpoints import Caller, Role

VARIABLE = "PENSTOCK_SERVE_TOKENS"
SHORTEST = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Of a token its digest is kept."""

    digest: bytes
    caller: Caller


class Tokens:
    """Who a token is of. Without any, whoever reaches the server may read."""

    def __init__(self, tokens: Iterable[Token] = ()) -> None:
        self._tokens = tuple(tokens)

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def caller(self, authorization: str | None) -> Caller:
        """Who sends this header; an error if that cannot be told."""
        if authorization is None:
            if not self._tokens:
                return Caller(name="anyone", role="reader")
            raise UnauthorizedError("a token is needed", hint="send it in the header: Authorization: Bearer TOKEN")
        scheme, _, token = authorization.partition(" ")
        given = _digest(token.strip())
        found = None
        for known in self._tokens:
            if hmac.compare_digest(known.digest, given):
                found = known.caller
        if scheme.lower() != "bearer" or found is None:
            raise UnauthorizedError("this token is not known")
        return found


def read_tokens(file: str | None, environment: str | None) -> Tokens:
    """The tokens of a file and of the environment."""
    found: list[Token] = []
    if file is not None:
        found += _parsed(_private(file).splitlines(), file)
    if environment:
        found += _parsed(environment.split(";"), f"${VARIABLE}")
    return Tokens(found)


def _private(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ConfigError(f"{file} holds tokens, and others can read it", hint=f"chmod 600 {file}")
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the tokens in {file} cannot be read", detail=str(error)) from error


def _parsed(lines: Iterable[str], where: str) -> list[Token]:
    found = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        role = next((role for role in get_args(Role) if role == words[0] and role != "anyone"), None)
        if role is None or len(words) not in (2, 3) or len(words[1]) < SHORTEST:
            raise ConfigError(
                f"line {number} of {where} is no token",
                hint=f"write ROLE TOKEN [NAME]: the role is reader, operator or admin; a token has {SHORTEST} characters",
            )
        name = words[2] if len(words) == 3 else f"{role}-{number}"
        found.append(Token(digest=_digest(words[1]), caller=Caller(name=name, role=role)))
    return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
