from __future__ import annotations

from pathlib import Path

import pytest

from penstock.connectors.options import check_options, resolved, shown, without_secrets
from penstock.errors import ConfigError


def test_references_are_looked_up_when_they_are_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("first\n")
    monkeypatch.setenv("WHO", "ann")
    options = {"sasl.username": "${env:WHO}", "sasl.password": f"${{file:{secret}}}", "client.id": "x"}
    check_options(options, "KafkaSource")
    assert resolved(options, "s") == {"sasl.username": "ann", "sasl.password": "first", "client.id": "x"}
    secret.write_text("second")
    assert resolved(options, "s")["sasl.password"] == "second", "a rotated secret is found"


def test_a_secret_that_is_written_out_is_refused() -> None:
    with pytest.raises(ConfigError, match="is a secret") as refused:
        check_options({"sasl.password": "hunter2"}, "KafkaSource")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("value", ["${vault:x}", "${env:}"])
def test_references_that_are_none_are_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="a reference that is not known"):
        check_options({"client.id": value}, "KafkaSource")


def test_what_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ConfigError, match="NOT_SET, which is not set"):
        resolved({"sasl.password": "${env:NOT_SET}"}, "KafkaSource")
    with pytest.raises(ConfigError, match="cannot be read"):
        resolved({"sasl.password": "${file:/no/such/file}"}, "KafkaSource")


def test_nothing_secret_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "open sesame")
    options = {"sasl.password": "${env:PASSWORD}", "client.id": "x"}
    assert shown(options) == {"sasl.password": "${env:PASSWORD}", "client.id": "x"}
    message = without_secrets("authentication failed: open sesame was refused", options, resolved(options, "s"))
    assert message == "authentication failed: *** was refused"
