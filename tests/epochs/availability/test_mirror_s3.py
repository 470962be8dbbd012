"""From an object store to a local disk and back: a job in either, its mirror in the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.jobs.mirror_record import read_mirror
from penstock.storage import open_storage
from tests.epochs.availability.test_mirror import whole
from tests.laws.trying import Crash, Interrupted, check_exact, crash, run
from tests.storage.test_s3 import bucket, credentials, endpoint

__all__ = ["bucket", "credentials", "endpoint"]


@pytest.mark.parametrize("first", ["s3", "local"])
def test_a_mirror_elsewhere(tmp_path: Path, endpoint: str, bucket: str, first: str) -> None:
    remote, local = f"s3://{bucket}/job?endpoint={endpoint}", str(tmp_path / "place")
    storage, mirror = (remote, local) if first == "s3" else (local, remote)
    with pytest.raises(Crash):
        run(tmp_path, Interrupted(5, crash), storage=storage, mirror=mirror)
    with pytest.raises(Crash):  # the mirror is wherever it came to
        run(tmp_path, Interrupted(2, crash), storage=storage, mirror=mirror)
    target = open_storage(mirror)
    assert read_mirror(target) is not None
    whole(target)
    run(tmp_path, storage=mirror, force=True)
    check_exact(tmp_path)
