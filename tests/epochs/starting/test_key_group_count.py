"""How many key groups a job has, and that its keys keep all partitions busy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import CollectSink, StreamEnvironment
from penstock.errors import ConfigError
from penstock.jobs.manifest import StateLayout
from penstock.jobs.terms import find_head, read_job
from penstock.storage import open_storage
from penstock.testing import execute_inline


def run(storage: Path, values: list[str] | list[int], **settings: Any) -> StateLayout:
    """Count the values, and tell how the state is laid out."""
    env = StreamEnvironment("counted")
    sink = CollectSink()
    counts = env.from_collection(values, name="values").key_by(lambda value: value).fold((), lambda n, _: n, name="counts")
    counts.sink_to(sink, name="out")
    execute_inline(env, storage=str(storage), **settings)
    sink.discard()
    head = find_head(open_storage(str(storage))).manifest
    assert head is not None
    assert read_job(open_storage(str(storage))).max_parallelism == head.state.max_parallelism
    return head.state


@pytest.mark.parametrize("parallelism", [2, 4])
@pytest.mark.parametrize("values", [[f"sensor-{n}" for n in range(20)], list(range(20))], ids=["sensors", "numbers"])
def test_few_keys_keep_every_partition_busy(tmp_path: Path, values: list[str] | list[int], parallelism: int) -> None:
    """By crc32, all sensors were in one partition of two, and two of four had nothing to do."""
    layout = run(tmp_path, values, parallelism=parallelism)
    (chains,) = [chains for chains, ids in zip(layout.chains, layout.stages, strict=True) if ids]
    entries = [sum(ref.entries for ref in chain) for chain in chains]
    assert len(entries) == parallelism
    assert min(entries) >= 2


def test_a_new_job_has_groups_enough(tmp_path: Path) -> None:
    for parallelism, groups in ((1, 128), (16, 128), (17, 256), (40, 512)):
        assert run(tmp_path / str(parallelism), ["a"], parallelism=parallelism).max_parallelism == groups
    assert run(tmp_path / "set", ["a"], parallelism=17, max_parallelism=20).max_parallelism == 20


def test_a_job_keeps_its_number(tmp_path: Path) -> None:
    """Whatever the parallelism that it is started with later; it cannot be more than there are groups."""
    assert run(tmp_path, ["a"], parallelism=2).max_parallelism == 128
    assert run(tmp_path, ["a"], parallelism=20).max_parallelism == 128
    assert run(tmp_path, ["a"], parallelism=20, max_parallelism=128).max_parallelism == 128
    with pytest.raises(ConfigError, match="parallelism is 200, max_parallelism 128"):
        run(tmp_path, ["a"], parallelism=200)
    with pytest.raises(ConfigError, match="max_parallelism is 128, not 256") as refused:
        run(tmp_path, ["a"], max_parallelism=256)
    assert "savepoint-rewrite" in refused.value.hint
