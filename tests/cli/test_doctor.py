"""`penstock doctor` where something is missing: each piece of advice leads out."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.commands.doctor import Finding, check_packages, check_spark_scripts, run_checks, spark_after
from penstock.errors import EnvironmentProblemError
from penstock.executors.spark.starting import check_scripts, not_started
from tests.cli.test_commands import penstock


def finding(check: Any) -> Finding:
    (found,) = run_checks([("Spark's scripts", check)])
    return found


def test_a_path_without_bash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = finding(check_spark_scripts)
    assert not found.ok
    assert "there is no bash on the PATH" in found.found
    assert "PATH" in found.remedy


def test_run_without_bash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    (tmp_path / "app.py").write_text(
        "from penstock import StreamEnvironment\n"
        "env = StreamEnvironment('x', parallelism=1)\nenv.from_collection([1]).print()\nenv.execute()\n"
    )
    done = penstock("run", tmp_path / "app.py")
    assert done.exit_code == 1
    assert "there is no bash on the PATH" in done.stderr
    assert "--executor inline" in done.stderr


def test_the_whole_report_without_bash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "250")
    done = penstock("doctor", "--local-dir", tmp_path / "local")
    assert done.exit_code == 1
    assert "not started, for want of Spark's scripts" in done.stdout
    assert "penstock doctor" not in done.stdout


@pytest.mark.parametrize(("made", "said"), [(False, "no bin/spark-submit"), (True, "is a Spark 3.5")])
def test_a_spark_home_that_is_not_ours(made: bool, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    if made:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "spark-submit").touch()
        (tmp_path / "jars").mkdir()
        (tmp_path / "jars" / "spark-core_2.12-3.5.1.jar").touch()
    with pytest.raises(EnvironmentProblemError, match=said) as caught:
        check_scripts()
    assert "unset SPARK_HOME" in caught.value.hint


def test_a_package_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    found = {one.check: one for one in check_packages()}
    assert not found["pyspark"].ok
    assert "pip install --force-reinstall 'pyspark" in found["pyspark"].remedy
    (spark,) = spark_after(list(found.values()), lambda: pytest.fail("Spark was started"))
    assert "for want of pyspark" in spark.found


def test_java_that_ends_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Spark's launcher is asked what is wrong, and its answer is shown."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\necho 'libjvm.so is damaged' >&2\nexit 3\n")
    os.chmod(tmp_path / "bin" / "java", 0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    error = not_started(RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number."), "x")
    assert "libjvm.so is damaged" in error.detail
    assert "set JAVA_HOME" in error.hint


@pytest.mark.parametrize(
    ("message", "hint"),
    [
        ("java.net.UnknownHostException: box", "SPARK_LOCAL_IP=127.0.0.1"),
        ("All masters are unresponsive! Giving up.", "no Spark master answers at spark://host:7077"),
        ("Could not parse Master URL: 'sprak'", "is no master"),
        ("something nobody has seen", "penstock.spark.log"),
    ],
)
def test_what_to_do_when_spark_does_not_start(message: str, hint: str) -> None:
    error = not_started(RuntimeError(message), "spark://host:7077")
    assert message.split(":")[0] in error.what
    assert hint in error.hint
    assert "doctor" not in error.hint


@pytest.mark.parametrize("command", ["doctor", "run", "jobs", "stop"])
def test_a_storage_that_is_a_file(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    blocked = tmp_path / "storage"
    blocked.write_text("not a folder")
    (tmp_path / "app.py").write_text(
        "from penstock import StreamEnvironment\n"
        "env = StreamEnvironment('x', executor='inline')\nenv.from_collection([1]).print()\nenv.execute()\n"
    )
    given = {
        "doctor": ["--no-spark", "--storage", str(blocked), "--local-dir", str(tmp_path / "local")],
        "run": [str(tmp_path / "app.py"), "--storage", str(blocked / "job")],
        "jobs": [str(blocked)],
        "stop": [str(blocked)],
    }
    done = penstock(command, *given[command])
    assert done.exit_code == 1
    assert f"{blocked} is a file" in (done.stdout if command == "doctor" else done.stderr)
