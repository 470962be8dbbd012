"""Java's archive of Spark's classes: used when there is one, made when told to."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from penstock.executors.spark.class_archive import archive_options


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A Java and a Spark, as far as an archive depends on them."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PENSTOCK_CLASS_ARCHIVE", "on")
    java, spark = tmp_path / "java", tmp_path / "spark"
    (spark / "jars").mkdir(parents=True)
    (spark / "jars" / "core.jar").write_bytes(b"classes")
    java.mkdir()
    (java / "release").write_text('JAVA_VERSION="17"')
    return str(java), str(spark)


def written(options: str) -> Path:
    found = re.search(r"-XX:ArchiveClassesAtExit=(\S+)", options)
    assert found is not None, options
    return Path(found[1])


def test_a_job_does_not_record(homes: tuple[str, str]) -> None:
    assert archive_options(*homes, record=False) == ""


def test_what_was_recorded_is_used(homes: tuple[str, str]) -> None:
    recorded = written(archive_options(*homes, record=True))
    recorded.write_bytes(b"\xa8\xab\x0b\xf0 and so on")
    options = archive_options(*homes, record=False)
    assert f"-XX:SharedArchiveFile={recorded.with_suffix('')} " in options
    assert archive_options(*homes, record=True) == options
    assert not recorded.exists()


def test_what_is_still_being_written_is_not(homes: tuple[str, str]) -> None:
    recorded = written(archive_options(*homes, record=True))
    recorded.write_bytes(bytes(8))
    assert archive_options(*homes, record=False) == ""
    assert recorded.exists()
    os.utime(recorded, (0, 0))
    assert archive_options(*homes, record=False) == ""
    assert not recorded.exists()  # its Java was killed long ago


@pytest.mark.parametrize("changed", ["jars/core.jar", "jars/new.jar"])
def test_other_jars_have_another(homes: tuple[str, str], changed: str) -> None:
    before = written(archive_options(*homes, record=True))
    Path(homes[1], changed).write_bytes(b"other classes")
    assert written(archive_options(*homes, record=True)) != before


def test_only_where_it_is_asked_for(homes: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    written(archive_options(*homes, record=True)).write_bytes(b"\xa8\xab\x0b\xf0 and so on")
    monkeypatch.delenv("PENSTOCK_CLASS_ARCHIVE")
    assert archive_options(*homes, record=True) == ""
    monkeypatch.setenv("PENSTOCK_CLASS_ARCHIVE", "off")
    assert archive_options(*homes, record=False) == ""
