"""Storage stays bounded: a job's storage holds less than three times its live state, however many epochs it has run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock import GeneratorSource, KeyedContext, KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.epochs.committing import retention
from penstock.epochs.history import EpochRecord
from penstock.ids import Epoch
from penstock.jobs.manifest import Manifest, load_manifest
from penstock.state.files.durable import FileIdentity, read_entries, write_base
from penstock.state.files.merging import live, newest
from penstock.storage import open_storage
from penstock.testing import CollectSink

KEYS = 100_000
EPOCHS = 1_000
TOUCHED = KEYS // 100


class Latest(KeyedProcessFunction[int, int, int]):
    """Keeps some hundred bytes for each key, which do not compress."""

    last: ValueState[bytes] = ValueState(bytes)

    def process(self, value: int, ctx: KeyedContext[int]) -> Iterator[int]:
        self.last.update(hashlib.shake_128(value.to_bytes(8, "big")).digest(100))
        return iter(())


def key_of(value: int) -> int:
    """First every key in turn, then any."""
    return value if value < KEYS else int.from_bytes(hashlib.blake2b(value.to_bytes(8, "big"), digest_size=8).digest()) % KEYS


@dataclass
class Watched:
    """The storage after each epoch: what it holds, and all that was ever written to it."""

    folder: Path
    sizes: list[int] = field(default_factory=list)
    written: dict[str, int] = field(default_factory=dict)

    def __call__(self, record: EpochRecord) -> None:
        found = dict(self._files())
        self.written.update(found)
        self.sizes.append(sum(found.values()))

    def _files(self) -> Iterator[tuple[str, int]]:
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):  # commits and retention go on while this looks
                    yield path, os.stat(path).st_size

    def total(self, ending: str, *, merged: bool = False) -> int:
        return sum(size for path, size in self.written.items() if path.endswith(ending) and ("-c" in path) == merged)


def live_size(folder: Path, manifest: Manifest) -> int:
    """The bytes of fresh bases of the same state."""
    storage, scratch = open_storage(folder / "storage"), open_storage(folder / "scratch")
    total = 0
    for stage, partitions in enumerate(manifest.state.chains):
        for partition, chain in enumerate(partitions):
            entries = live(newest([read_entries(storage, ref) for ref in chain]))
            name, identity = f"{stage}-{partition}.base", FileIdentity("j", 1, str(stage), partition, "a")
            total += write_base(scratch, name, (pair for block in entries for pair in zip(*block, strict=True)), identity).size
    return total


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:  # in memory: see conftest
        yield Path(name)


def test_a_thousand_epochs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(folder / "storage")
    monkeypatch.setattr(retention, "_now", lambda: 1000 * len(watched.sizes))  # an epoch a second: the grace lasts five
    env = StreamEnvironment(
        "bounded",
        executor="inline",
        parallelism=2,
        storage=str(folder / "storage"),
        local_dir=str(folder / "local"),
        state_store="memory",
        max_records_per_epoch=TOUCHED,
        first_records_per_epoch=TOUCHED,
    )
    numbers = env.from_source(GeneratorSource(int, count=TOUCHED * EPOCHS), name="numbers")
    numbers.key_by(key_of).process(Latest(), name="latest").sink_to(CollectSink(), name="out")
    result = env.execute(listener=watched)
    assert result.epochs >= EPOCHS
    assert result.last_epoch is not None
    size = live_size(folder, load_manifest(open_storage(folder / "storage"), Epoch(result.last_epoch)))
    settled = watched.sizes[3 * KEYS // TOUCHED :]
    assert max(settled) < 3 * size
    changed = TOUCHED * EPOCHS * (4 + 3 + 103)  # heads, keys, values
    deltas, merged, bases, rest = (
        watched.total(".delta") / changed,
        watched.total(".delta", merged=True) / changed,
        watched.total(".base", merged=True) / changed,
        (watched.total(".json") + watched.total(".done")) / changed,
    )
    print(
        f"\nof live state: at most {max(settled) / size:.2f}, at the end {settled[-1] / size:.2f}; durable bytes over changed: "
        f"deltas {deltas:.2f} + merged {merged:.2f} + bases {bases:.2f} + manifests {rest:.2f}"
    )
    assert deltas < 1.5
    assert deltas + merged + bases < 4
