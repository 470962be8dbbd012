"""A local Spark is closed to other machines."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

import pytest

from penstock.executors.spark.loopback import loopback
from tests.spark.launching import launch

CLOSED = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.authenticate": "true"}


@pytest.mark.spark
@pytest.mark.slow
def test_a_local_job_listens_on_loopback_only(tmp_path: Path) -> None:
    told = json.loads(launch("listening", tmp_path, str(tmp_path)).splitlines()[-1])
    assert told["java"] == 1
    assert told["workers"] > 0
    assert told["authenticated"] == "true"
    assert told["listening"], "Spark listens on something: the test has not found it"
    for command, _, address, port in told["listening"]:
        assert ipaddress.ip_address(address).is_loopback, f"{address}:{port}, by {command}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Spark without settings of its own."""
    for name in ("SPARK_LOCAL_IP", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,4]"])
def test_local_masters_are_closed(home: Path, master: str) -> None:
    assert loopback(master, {}, str(home)) == CLOSED


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://host", "local-cluster[2,1,1024]"])
def test_a_cluster_is_not(home: Path, master: str) -> None:
    assert loopback(master, {}, str(home)) == {}


def test_what_the_user_has_set_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only = {"spark.authenticate": "true"}
    assert loopback("local[2]", {"spark.driver.host": "10.0.0.1"}, str(home)) == only
    assert loopback("local[2]", {"spark.driver.bindAddress": "0.0.0.0"}, str(home)) == only
    assert "spark.authenticate" not in loopback("local[2]", {"spark.authenticate": "false"}, str(home))
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.1")
    assert loopback("local[2]", {}, str(home)) == only


def test_what_the_machine_has_set_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "conf").mkdir()
    lines = ["# spark.driver.bindAddress 10.0.0.2", "spark.driver.host\t10.0.0.1", "spark.authenticate=false"]
    (home / "conf" / "spark-defaults.conf").write_text("\n".join(lines))
    assert loopback("local[2]", {}, str(home)) == {}
    monkeypatch.setenv("SPARK_CONF_DIR", str(home))
    assert loopback("local[2]", {}, str(home)) == CLOSED
