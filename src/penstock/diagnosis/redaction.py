"""What looks like a secret, and is not to be stored or shown: passwords, tokens and keys in arguments, settings and messages.

The list is conservative: it masks what is a secret by its name (`--password X`, `DB_PASSWORD=X`), by its place
(`scheme://user:X@host`) or by its form (an AWS access key id, a token of GitHub). It cannot know that `-p X` or an argument
without a name is one: secrets belong in the environment or in a file. A name that says how many, where or which
(`--token-count`, `--password-file`) is not that of a secret.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

MASK = "***"

_WORDS = r"password|passwd|passphrase|pwd|secret|token|credential|credentials|apikey|authorization"
_KEYS = r"(?:api|access|secret|private|account|auth|encryption|signing|master|shared)[-_.]?key"
_SECRET_NAME = re.compile(rf"(?:.*[-_.])?(?:{_WORDS}|{_KEYS})", re.IGNORECASE)
_NOT_A_VALUE = re.compile(r"(?:no|use|with|ask|prompt)[-_.]", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

_PAIR = re.compile(
    r"(?<![\w.-])(?P<name>-{0,2}[A-Za-z_][\w.-]*)(?P<equals>[\"']?\s?[=:]\s?)(?P<value>'[^']*'|\"[^\"]*\"|[^\s&;,'\"]+)"
)
_OPTION = re.compile(r"(?<![\w-])(?P<option>--[A-Za-z][\w.-]*)(?P<space>\s+)(?P<value>'[^']*'|\"[^\"]*\"|(?!--)[^\s'\"]+)")
_USER_INFO = re.compile(r"(?P<start>\b[A-Za-z][A-Za-z0-9+.-]*://[^\s:/@?#]*:)(?P<secret>[^\s/?#]+)(?=@)")
_SIGNATURE = re.compile(
    r"(?P<name>[?&](?:sig|signature|x-amz-signature|x-amz-security-token)=)(?P<value>[^\s&;'\"]+)", re.IGNORECASE
)
_BEARER = re.compile(r"(?P<scheme>\b(?:Bearer|Basic)\s+)(?P<value>[A-Za-z0-9+/_.=~-]{8,})")
_KNOWN_FORMS = re.compile(
    r"\b(?:"
    r"(?:AKIA|ASIA)[0-9A-Z]{16}"  # AWS access key ids
    r"|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}"
    r"|glpat-[\w-]{20,}"
    r"|xox[abeprs]-[\w-]{10,}"
    r"|sk_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|AIza[\w-]{35}"
    r"|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+"  # JSON web tokens
    r")"
)
_AWS_ID = re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")


def is_secret_name(name: str) -> bool:
    """Does an option, a variable or a field of this name hold a secret?

    >>> [is_secret_name(name) for name in ("--db-password", "AWS_SECRET_ACCESS_KEY", "AccountKey", "--token-count", "--key")]
    [True, True, True, False, False]
    """
    bare = _CAMEL.sub("-", name.lstrip("-"))
    return _SECRET_NAME.fullmatch(bare) is not None and _NOT_A_VALUE.match(bare) is None


def redact_arguments(arguments: Sequence[str]) -> list[str]:
    """A program's arguments with secrets masked.

    >>> redact_arguments(["in", "--password", "hunter2", "--api-key=abc", "postgres://me:pw@host/db"])
    ['in', '--password', '***', '--api-key=***', 'postgres://me:***@host/db']
    """
    found: list[str] = []
    follows = False
    aws = any(_AWS_ID.search(argument) for argument in arguments)
    for argument in arguments:
        if follows and not argument.startswith("--"):
            found.append(MASK)
            follows = False
            continue
        follows = argument.startswith("--") and "=" not in argument and is_secret_name(argument)
        name, equals, _ = argument.partition("=")
        whole = equals and is_secret_name(name)  # its value may have spaces
        found.append(f"{name}={MASK}" if whole else redact_text(argument, aws=aws))
    return found


def redact_text(text: str, *, aws: bool = False) -> str:
    """A text with secrets masked. `aws`: an AWS key id was near.

    >>> redact_text("cannot connect to s3://me:pw@bucket with DB_PASSWORD=x and --token 'a b'")
    'cannot connect to s3://me:***@bucket with DB_PASSWORD=*** and --token ***'
    """
    if aws or _AWS_ID.search(text):
        text = _AWS_SECRET.sub(_unless_a_hash, text)
    text = _KNOWN_FORMS.sub(MASK, text)
    text = _USER_INFO.sub(rf"\g<start>{MASK}", text)
    text = _SIGNATURE.sub(rf"\g<name>{MASK}", text)
    text = _BEARER.sub(rf"\g<scheme>{MASK}", text)
    text = _OPTION.sub(lambda m: f"{m['option']}{m['space']}{MASK}" if is_secret_name(m["option"]) else m[0], text)
    return _PAIR.sub(_masked_pair, text)


def redact_data(value: Any) -> Any:
    """Settings, or other plain data as JSON holds it, with secrets masked.

    >>> redact_data({"token": "x", "from": ["https://me:pw@host"], "drain": True})
    {'token': '***', 'from': ['https://me:***@host'], 'drain': True}
    """
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        secret = {name for name, held in value.items() if isinstance(held, str) and is_secret_name(str(name))}
        return {name: MASK if name in secret else redact_data(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [redact_data(held) for held in value]
    return value


def _masked_pair(pair: re.Match[str]) -> str:
    """`token: x` may be prose; `token=x`, `token:x` and `"token": "x"` are not."""
    prose = pair["equals"] == ": " and pair["value"][0] not in "'\""
    value = MASK if is_secret_name(pair["name"]) and not prose else _PAIR.sub(_masked_pair, pair["value"])
    return f"{pair['name']}{pair['equals']}{value}"


def _unless_a_hash(found: re.Match[str]) -> str:
    text = found[0]
    mixed = any(c.isupper() for c in text) and any(c.islower() for c in text) and any(c.isdigit() for c in text)
    return MASK if mixed else text
