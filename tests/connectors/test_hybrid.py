"""History, then live: as one source, and across crashes at the switch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import CollectionSource, FileSource, GeneratorSource, StreamEnvironment
from penstock.connectors import HybridSource
from penstock.connectors.protocol import Limits
from penstock.errors import ConfigError
from penstock.storage import LocalStorage
from penstock.testing.contracts import SOURCE_CHECKS, SourceCase
from penstock.testing.contracts.source_checks import SourceCheck
from tests.connectors.driving import Drive, context


def squared(n: int) -> int:
    return n * n


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_contract(check: SourceCheck, tmp_path: Path) -> None:
    source = HybridSource(CollectionSource(["a", "b", "c"], partitions=2), GeneratorSource(squared, count=5, partitions=1))
    expected: dict[str, list[Any]] = {"0:0": ["a"], "0:1": ["b", "c"], "1:0": [0, 1, 4, 9, 16]}
    check(SourceCase(source=source, storage=LocalStorage(tmp_path), expected=expected))


@given(
    st.integers(0, 20),
    st.integers(0, 20),
    st.lists(st.builds(Limits, records=st.integers(1, 9), bytes=st.just(1))),
    st.lists(st.booleans(), max_size=8),
)
def test_whatever_the_cuts(before: int, after: int, limits: list[Limits], crashes: list[bool]) -> None:
    source = HybridSource(CollectionSource(list(range(before))), GeneratorSource(squared, count=after, partitions=1))
    d = Drive(source, context("/nowhere"))
    d.run(limits, crashes)
    assert d.all == [*range(before), *(n * n for n in range(after))]


def test_files_then_events(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(10)))
    live = GeneratorSource(lambda n: {"n": 10 + n}, count=10)
    env = StreamEnvironment("x", executor="inline", parallelism=2, max_records_per_epoch=4)
    stream = env.from_source(HybridSource(FileSource(str(tmp_path / "in.json")), live), name="in")
    assert sorted(row["n"] for row in stream.execute_and_collect()) == list(range(20))


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ConfigError, match="never ends"):
        HybridSource(GeneratorSource(squared), GeneratorSource(squared))
    with pytest.raises(ConfigError, match="is not a source"):
        HybridSource([1, 2], GeneratorSource(squared))  # type: ignore[arg-type]
