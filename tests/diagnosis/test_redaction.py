"""What looks like a secret is masked, and nothing else is."""

from __future__ import annotations

import pytest

from penstock.diagnosis.redaction import MASK, redact_arguments, redact_data, redact_text

SECRET = "hunter2"
AWS_ID, AWS_SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--password", SECRET],
        [f"--password={SECRET}"],
        ["--db-password", SECRET],
        ["--PASSWORD", SECRET],
        ["--passwd", SECRET],
        ["--api-key", SECRET],
        [f"--api_key={SECRET}"],
        ["--apikey", SECRET],
        ["--token", SECRET],
        ["--access-token", SECRET],
        ["--secret", SECRET],
        ["--client-secret", SECRET],
        ["--credentials", SECRET],
        ["--secret-access-key", SECRET],
        ["--password", "-" + SECRET],
        [f"--password={SECRET} with spaces"],
        [f"DB_PASSWORD={SECRET}"],
        [f"AWS_SECRET_ACCESS_KEY={SECRET}"],
        ["--env", f"API_TOKEN={SECRET}"],
        [f"--env=API_TOKEN={SECRET}"],
        [f"postgres://me:{SECRET}@host:5432/db"],
        ["--source", f"https://me:{SECRET}@host/path?x=1"],
        [f"redis://:{SECRET}@host"],
        [f"https://host/path?user=me&password={SECRET}&x=1"],
        [f"https://account.blob.core.windows.net/c?sv=1&sig={SECRET}"],
        [f"Endpoint=sb://x/;SharedAccessKey={SECRET};EntityPath=p"],
        [f"jdbc:mysql://host/db?user=me&password={SECRET}"],
        [f"Authorization: Bearer {SECRET}{SECRET}"],
    ],
    ids=" ".join,
)
def test_secrets_are_masked(arguments: list[str]) -> None:
    masked = redact_arguments(arguments)
    assert SECRET not in " ".join(masked)
    assert MASK in " ".join(masked)
    assert len(masked) == len(arguments)
    assert redact_arguments(masked) == masked


@pytest.mark.parametrize(
    "text", [AWS_ID, f"{AWS_ID}:{AWS_SECRET}", "ghp_" + "a1B2" * 9, "xoxb-1234567890-abcdef", "eyJhbGciOiJI.eyJzdWIiOiIx.abc-_x"]
)
def test_known_forms_are_masked(text: str) -> None:
    assert text not in redact_text(f"before {text} after")
    assert redact_text(f"before {text} after").startswith("before ***")


def test_an_aws_secret_is_known_by_the_id_beside_it() -> None:
    assert redact_arguments([AWS_ID, AWS_SECRET]) == [MASK, MASK]
    assert redact_arguments(["--name", AWS_SECRET]) == ["--name", AWS_SECRET]  # it may be anything


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["in", "out", "--rate", "5"],
        ["--password"],
        ["--password-file", "/run/secrets/db"],
        ["--token-count", "5"],
        ["--no-password", "x"],
        ["--key", "user_id"],
        ["--partition-key=user_id"],
        ["--keys", "a,b"],
        ["--secrets-manager", "vault"],
        ["--monkey", "x"],
        ["--tokens=5"],
        ["s3://bucket/prefix?region=eu"],
        ["http://host:8080/path"],
        ["http://host:8080/a@b"],
        ["2024-01-01T10:00:00"],
        ["C:/folder/file"],
        ["da39a3ee5e6b4b0d3255bfef95601890afd80709"],
        ["user@host"],
        ["a=b", "c:d"],
    ],
    ids=" ".join,
)
def test_what_is_no_secret_stays(arguments: list[str]) -> None:
    assert redact_arguments(arguments) == arguments


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"penstock run app.py -- --password {SECRET} --rate 5", "penstock run app.py -- --password *** --rate 5"),
        (f"penstock run app.py -- --password '{SECRET} x'", "penstock run app.py -- --password ***"),
        (f'{{"password": "{SECRET}", "n": 1}}', '{"password": ***, "n": 1}'),
        (f"could not reach https://me:{SECRET}@host/", "could not reach https://me:***@host/"),
        ("the token: it is missing", "the token: it is missing"),
        ("step 'sum': ValueError: no password", "step 'sum': ValueError: no password"),
    ],
)
def test_messages(text: str, shown: str) -> None:
    assert redact_text(text) == shown


def test_settings() -> None:
    given = {"storage": f"s3://me:{SECRET}@bucket/x", "parallelism": 4, "drain": True, "token": SECRET}
    assert redact_data(given) == {"storage": "s3://me:***@bucket/x", "parallelism": 4, "drain": True, "token": MASK}
