from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.connectors import catalogue
from penstock.connectors.installed import Connector, installed_connectors, needed
from penstock.errors import EnvironmentProblemError


@pytest.fixture
def others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of somebody else, with three connectors: one that works, one that needs more, one that is broken."""
    (tmp_path / "penstock_mail.py").write_text(
        "from penstock.connectors.installed import Connector\n"
        "GOOD = Connector('mail', module='penstock_mail', sources=('MailSource',))\n"
        "NEEDY = Connector('more mail', module='penstock_mail', sinks=('M',), needs=('no_such_module',), extra='mail[x]')\n"
        "WRONG = 42\n"
    )
    info = tmp_path / "penstock_mail-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: penstock-mail\nVersion: 1.0\n")
    names = {"mail": "GOOD", "mail-needy": "NEEDY", "mail-wrong": "WRONG", "mail-gone": "NOTHING"}
    entries = "".join(f"{name} = penstock_mail:{attribute}\n" for name, attribute in names.items())
    (info / "entry_points.txt").write_text(f"[penstock.connectors]\n{entries}")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("others")
def test_connectors_of_others_are_found() -> None:
    found = {each.name: each for each in installed_connectors() if each.package == "penstock-mail"}
    assert found["mail"].problem == ""
    assert found["mail-needy"].problem == "pip install 'mail[x]'"
    assert "is a int, not a Connector" in found["mail-wrong"].problem
    assert "AttributeError" in found["mail-gone"].problem


@pytest.mark.usefixtures("others")
def test_the_command_lists_them() -> None:
    shown = CliRunner().invoke(app, ["connectors"])
    assert shown.exit_code == 0
    assert "MailSource" in shown.output
    assert "pip install 'mail[x]'" in shown.output
    as_json = json.loads(CliRunner().invoke(app, ["connectors", "--json"]).output)
    mail = next(each for each in as_json if each["name"] == "mail")
    assert (mail["ready"], mail["sources"], mail["package"]) == (True, ["MailSource"], "penstock-mail")


def test_what_is_missing_says_what_to_install() -> None:
    with pytest.raises(EnvironmentProblemError, match="pip install 'penstock\\[kafka\\]'"):
        needed("no_such_module", "penstock[kafka]", "KafkaSource")


def test_ours_are_what_they_say() -> None:
    """Every connector of the catalogue names things that are there."""
    import importlib

    ours = [value for value in vars(catalogue).values() if isinstance(value, Connector)]
    assert len(ours) > 4
    for connector in ours:
        module = importlib.import_module(connector.module)
        for name in (*connector.sources, *connector.sinks):
            assert hasattr(module, name), f"{connector.module} has no {name}"


def test_all_of_ours_are_declared() -> None:
    import tomllib

    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    declared = set(project["entry-points"]["penstock.connectors"].values())
    ours = {f"penstock.connectors.catalogue:{name}" for name, value in vars(catalogue).items() if isinstance(value, Connector)}
    assert declared == ours
    for name in ours:
        extra = getattr(catalogue, name.partition(":")[2]).extra
        assert not extra or extra.removeprefix("penstock[").removesuffix("]") in project["optional-dependencies"]
