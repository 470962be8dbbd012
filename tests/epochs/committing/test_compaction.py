"""What is merged, and when: simulated, without files."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from penstock.epochs.committing.compaction import choose, read_size
from penstock.epochs.committing.compaction_runner import replaced
from penstock.state.files.durable import FileRef, Kind

BASE = 100_000_000


def ref(name: str, kind: Kind, size: int, lo: int = 0, hi: int = 65536) -> FileRef:
    return FileRef(name, kind, size, "", 1, 0, 127, lo, hi)


@dataclass
class Simulated:
    """A state of constant size whose epochs change a part of it; a merge takes `slow` epochs."""

    changed: float
    compact_after: int = 16
    keep: int = 15
    slow: int = 0
    chain: list[FileRef] = field(default_factory=list)
    written: int = 0
    epochs: int = 0
    longest: int = 0
    largest: int = 0
    held: list[dict[str, int]] = field(default_factory=list)
    _running: tuple[int, tuple[FileRef, ...], FileRef] | None = None

    def run(self, epochs: int) -> Simulated:
        for _ in range(epochs):
            self._epoch()
        return self

    def _epoch(self) -> None:
        self.epochs += 1
        size = round(BASE * self.changed)
        self.chain.append(ref(f"{self.epochs}", "delta", size))
        self.written += size
        if self._running is not None and self._running[0] <= self.epochs:
            self.chain = replaced(self.chain, self._running[1], self._running[2])
            self._running = None
        self.held = [*self.held[-self.keep :], {r.name: r.size for r in self.chain}]
        self.longest = max(self.longest, len(self.chain))
        if self.epochs > 1.5 / self.changed:
            self.largest = max(self.largest, sum({name: s for held in self.held for name, s in held.items()}.values()))
        chosen = choose(self.chain, self.compact_after)
        if chosen is not None and self._running is None:
            run = tuple(self.chain[chosen.start : chosen.stop])
            weight = BASE if chosen.base else sum(r.size for r in run)
            self.written += weight
            made = ref(f"{self.epochs}c", "base" if chosen.base else "delta", weight)
            self._running = (self.epochs + 1 + self.slow, run, made)


@pytest.mark.parametrize("slow", [0, 3])
@pytest.mark.parametrize(
    ("changed", "amplified", "longest"), [(0.0005, 4.5, 75), (0.002, 3.9, 70), (0.01, 3.3, 45), (0.03, 2.8, 30), (0.1, 2.7, 12)]
)
def test_bytes_written_and_length(changed: float, amplified: float, longest: int, slow: int) -> None:
    done = Simulated(changed, slow=slow).run(round(20 / changed) if changed > 0.001 else 10_000)
    assert done.written / (done.epochs * changed * BASE) < amplified
    assert done.longest <= longest


@pytest.mark.parametrize("changed", [0.0005, 0.002, 0.01])
@pytest.mark.parametrize("slow", [0, 3])
def test_storage_is_less_than_three_times_the_state(changed: float, slow: int) -> None:
    done = Simulated(changed, slow=slow).run(round(10 / changed) if changed > 0.001 else 6_000)
    assert done.largest < 3 * BASE


def test_epochs_that_change_everything_do_not_each_make_a_base() -> None:
    done = Simulated(1.0).run(200)
    assert done.written / (done.epochs * BASE) < 1.3
    assert done.longest <= 12


def test_little_state_is_merged_for_the_number_of_files() -> None:
    chain = [ref("b", "base", 2000), *(ref(str(n), "delta", 1500) for n in range(15))]
    assert choose(chain, 16) is None
    chosen = choose([*chain, ref("more", "delta", 1500)], 16)
    assert chosen is not None
    assert (chosen.base, chosen.start, chosen.stop) == (True, 0, 17)


def test_parts_of_files_count_as_parts() -> None:
    assert read_size(ref("b", "base", 1000)) == 1000
    assert read_size(ref("b", "base", 1280, 32, 64)) == 320
    parts = [ref("a", "base", BASE, 0, 32), ref("b", "base", BASE, 32, 64)]
    assert choose(parts, 3) is None  # in two parts it is as good
    chosen = choose([*parts, ref("1", "delta", 10), ref("2", "delta", 10)], 3)
    assert chosen is not None
    assert chosen.base
