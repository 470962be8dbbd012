"""Which epochs can be run again, and what it takes.

Law: an epoch can be replayed if its manifest and that of its parent are kept. What was read, and the clock, are in the first;
state, times and positions before it are in the second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from penstock.compile.renames import as_called_now, by_new_name, former_names
from penstock.errors import ConfigError, CorruptFileError
from penstock.ids import Epoch
from penstock.jobs.manifest import EpochInput, Manifest, load_manifest, time_has_ended
from penstock.jobs.pins import kept_epochs
from penstock.plan.nodes import Graph
from penstock.snapshots.restore.reference import LATEST, parse_reference
from penstock.storage import Storage

NEXT = "next"
Wanted = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayable:
    """An epoch that can be run again. `inputs`: it, after the epochs that were committed with it."""

    epoch: Epoch
    parent: Epoch
    inputs: tuple[EpochInput, ...]
    records_in: int
    records_out: int
    created_ms: int
    program: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is to be run: `inputs` in order, from the state of `parent`. `committed`: what came of it, None for the next epoch."""

    wanted: Wanted
    parent: Manifest
    inputs: tuple[EpochInput, ...] = ()
    committed: Manifest | None = None

    @property
    def shown(self) -> frozenset[Epoch]:
        """The epochs that were asked for: one of those committed together, or all of them."""
        if self.committed is None or self.wanted == self.committed.epoch or isinstance(self.wanted, str):
            return frozenset(one.epoch for one in self.inputs)
        return frozenset((Epoch(int(self.wanted)),))

    def as_called_now(self, graph: Graph) -> Choice:
        """The same with steps under the names that the program has for them."""
        renamed = former_names(graph)
        if not renamed:
            return self
        committed = self.committed
        if committed is not None:
            counts = by_new_name(committed.metrics, renamed)
            committed = msgspec.structs.replace(as_called_now(committed, graph), metrics=counts)
        inputs = [msgspec.structs.replace(given, read=by_new_name(given.read, renamed)) for given in self.inputs]
        return Choice(wanted=self.wanted, parent=as_called_now(self.parent, graph), inputs=tuple(inputs), committed=committed)

    @property
    def program(self) -> str:
        return (self.committed or self.parent).program


def parse_target(text: str) -> tuple[str, Wanted | None]:
    """`JOB@EPOCH` as (job, epoch); without an epoch, (job, None)."""
    if text.endswith(f"@{NEXT}"):
        return text.removesuffix(f"@{NEXT}"), NEXT
    reference = parse_reference(text)
    if reference.kind != "epoch" or not reference.place:
        return text, None
    return reference.place, LATEST if reference.epoch is None else reference.epoch


def inputs_of(manifest: Manifest) -> tuple[EpochInput, ...]:
    """What was run for a manifest, in order; nothing for the empty epoch that a driver begins with."""
    if not manifest.read:
        return tuple(manifest.earlier)
    own = EpochInput(
        epoch=manifest.epoch,
        plan=manifest.plan,
        processing_time=manifest.processing_time,
        read=manifest.read,
        final=manifest.finished or time_has_ended(manifest),
        laps=manifest.laps,
        tables=manifest.tables,
    )
    return (*manifest.earlier, own)


def replayable(storage: Storage) -> list[Replayable]:
    """Every epoch that can be run again, oldest first."""
    kept = sorted(kept_epochs(storage)[0])
    found = []
    for epoch in kept:
        try:
            manifest = load_manifest(storage, epoch)
        except CorruptFileError:
            continue
        inputs = inputs_of(manifest)
        if not inputs or manifest.parent is None or manifest.parent not in kept:
            continue
        steps = manifest.metrics
        sources = {step for one in inputs for step in one.read}
        found.append(
            Replayable(
                epoch=epoch,
                parent=manifest.parent,
                inputs=inputs,
                records_in=sum(m.records_in for step, m in steps.items() if step in sources),
                records_out=sum(m.records_out for step, m in steps.items() if step not in sources),
                created_ms=manifest.created_ms,
                program=manifest.program,
            )
        )
    return found


def choose(storage: Storage, wanted: Wanted) -> Choice:
    """What is to be run again for an epoch, or why it cannot be. `"next"` has no inputs yet."""
    kept = sorted(kept_epochs(storage)[0])
    if not kept:
        raise ConfigError(f"the job in {storage.uri} has no committed epoch", hint="run it first")
    if wanted == NEXT:
        return Choice(wanted=wanted, parent=load_manifest(storage, kept[-1]))
    if wanted == LATEST:
        possible = replayable(storage)
        if not possible:
            raise _cannot("there is no epoch that could be replayed", storage)
        wanted = possible[-1].epoch
    epoch = Epoch(int(wanted))
    above = [one for one in kept if one >= epoch]
    if not above:
        raise _cannot(f"epoch {epoch} is not committed: the newest is {kept[-1]}", storage)
    manifest = load_manifest(storage, above[0])
    inputs = inputs_of(manifest)
    if manifest.epoch != epoch and all(one.epoch != epoch for one in inputs):
        raise _cannot(f"epoch {epoch} is not kept any more", storage)
    if not inputs:
        raise _cannot(f"epoch {epoch} read nothing: it is the empty one with which a driver began", storage)
    if manifest.parent is None or manifest.parent not in kept:
        raise _cannot(f"epoch {epoch} is kept, but the one before it, {manifest.parent}, is not", storage)
    parent = load_manifest(storage, manifest.parent)
    return Choice(wanted=wanted, parent=parent, inputs=inputs, committed=manifest)


def _cannot(what: str, storage: Storage) -> ConfigError:
    possible = [one.epoch for known in replayable(storage) for one in known.inputs]
    return ConfigError(
        what,
        detail=f"epochs that can be replayed: {spans(possible) or 'none'}",
        hint="more are kept with keep=; `JOB@next` replays what the job would do next",
    )


def spans(numbers: Iterable[int]) -> str:
    """Numbers for people: "3 to 7, 9".

    >>> spans([3, 4, 5, 7, 9, 10])
    '3 to 5, 7, 9, 10'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
