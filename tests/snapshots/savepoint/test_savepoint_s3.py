"""To S3 and back: from a job on local disk, from a job on S3, and as a copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Job
from penstock.errors import ConfigError, NotFoundError
from penstock.jobs.terms import find_head
from penstock.snapshots.savepoint import savepoint as savepoints
from penstock.snapshots.savepoint.format import read_info
from penstock.storage import open_storage
from penstock.testing import execute_inline
from tests.snapshots.saving import committed, contents, visits
from tests.storage.test_s3 import bucket, credentials, endpoint

__all__ = ["bucket", "credentials", "endpoint"]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize("large", [False, True])
def test_to_s3_and_back(tmp_path: Path, endpoint: str, bucket: str, monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    if large:
        monkeypatch.setattr(savepoints, "LARGE_BYTES", 0)
    execute_inline(visits(tmp_path / "job"), epochs=4)
    manifest = find_head(open_storage(tmp_path / "job")).manifest
    assert manifest is not None
    expected = committed(open_storage(tmp_path / "job"), manifest)
    place = open_storage(f"s3://{bucket}/savepoints/one?endpoint={endpoint}")
    with pytest.raises(NotFoundError, match="holds no savepoint"):
        read_info(place)
    info = Job(tmp_path / "job").savepoint(place.uri)
    assert info.uri == place.uri
    assert contents(read_info(place)) == expected
    with pytest.raises(ConfigError, match="holds a savepoint already"):
        Job(tmp_path / "job").savepoint(place.uri)

    back = open_storage(tmp_path / "copy")
    for listed in place.list():
        back.create(listed.path, place.read(listed.path))
    assert contents(read_info(back)) == expected


def test_of_a_job_on_s3(tmp_path: Path, endpoint: str, bucket: str) -> None:
    storage = open_storage(f"s3://{bucket}/job?endpoint={endpoint}")
    execute_inline(visits(storage.uri), epochs=3)
    manifest = find_head(storage).manifest
    assert manifest is not None
    for to in (None, str(tmp_path / "place")):
        info = Job(storage.uri).savepoint(to)
        assert contents(info) == committed(storage, manifest)
    assert len({listed.path.split("/")[1] for listed in storage.list("savepoints")}) == 1
