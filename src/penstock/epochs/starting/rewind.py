"""What sinks do when a job resumes from an earlier epoch than its newest.

Laws:
- The take-over epoch is above every epoch that storage or sinks know of, so no number is ever used again.
- Output of the line that is given up is not finished: what it had committed but not published stays unpublished.
- A sink that can takes back what was published after the epoch gone back to: after the manifest of the take-over, before its done
  mark, so that a crash in between is finished by the next start. This also when there is nothing to take back: from then on no
  driver of the line that was given up can publish.
- What a sink cannot take back will be repeated. That is refused, sink by sink, unless the user agrees.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.compile.renames import by_new_name
from penstock.config import Guarantee, JobConfig
from penstock.connectors.protocol import Committer, Fences, KnowsPlaces, OutputSince, Repairs, RollsBack, TellsPublished
from penstock.diagnosis.invocation import Invocation
from penstock.errors import ConfigError, CorruptFileError, PenstockError, RepeatedOutputError, SinkError
from penstock.failpoints import fail_point
from penstock.ids import Epoch, JobId, StepId
from penstock.jobs import paths
from penstock.jobs.manifest import Manifest, Rewind, load_manifest
from penstock.jobs.terms import Head, check_not_fenced
from penstock.runtime.messages import EpochOrder
from penstock.storage import Storage

log = logging.getLogger("penstock")

PUBLICATIONS = 1_000_000_000
"""At least once: numbers that each epoch has for what its attempts publish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkFacts:
    """A sink, as far as going back concerns it. `records`: what the manifests that are given up say it received, if known."""

    step: StepId
    what: str
    can: bool
    published: OutputSince | None
    records: int | None
    newest: Epoch | None = None
    """The newest epoch that its target records, if it does."""
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    """Records that were published to other places, where the sink wrote then: they stay there."""


# --- deciding -----------------------------------------------------------------------------------------------------------------


def plan_rewind(head: Head, before: Manifest | None, job: JobId, published: Epoch, config: JobConfig) -> Rewind | None:
    """Whether the job goes back, and to where. Pure.

    It does when it is started from an earlier epoch of its own, or from elsewhere after it had epochs of its own; when the newest
    manifest is damaged and it falls back; and when its storage is older than its output: a mirror, or a copy put back. (At least
    once publishes before the manifest: what is of the epoch after the newest is no sign of that.)
    """
    to = before.epoch if before is not None and before.job == job else Epoch(0)
    newest = max(head.epochs, default=Epoch(0))
    if before is not None and (begun := only_claimed(before)) is not None:
        return Rewind(begun.to, max(newest, published, begun.beyond), config.repair or begun.repair)
    ahead = config.guarantee == "at-least-once"
    if newest == to and published <= newest + ahead:
        return None
    return Rewind(to, max(newest, published, to), config.repair)


def asked_for(config: JobConfig, elsewhere: Epoch) -> bool:
    """Has anybody said that the job may go back? Pure."""
    return config.fall_back or config.repeat_output or config.repair or config.restore_from is not None or elsewhere > 0


def only_claimed(manifest: Manifest) -> Rewind | None:
    """The way back that a driver had claimed the storage for when it died (see `takeover.claim_of`). Pure."""
    return manifest.back if manifest.back is not None and manifest.epoch <= manifest.back.beyond else None


def check_was_finished(head: Head, line: frozenset[Epoch], before: Manifest, storage: str) -> None:
    """A job can resume from an epoch of an abandoned line only if its output was published then. Pure."""
    if before.committables and before.epoch in head.undone and before.epoch not in line:
        raise SinkError(
            f"epoch {before.epoch} of {storage} was abandoned before its output was published",
            detail="the job went back to an earlier epoch then, and what this epoch had staged is gone",
            hint="start from another epoch",
        )


def repeated(back: Rewind, sinks: Sequence[SinkFacts]) -> list[str]:
    """What will be published again, a line for each sink that cannot take it back. Pure."""
    lines = []
    for sink in sinks:
        known = sink.published is not None and sink.published.epochs == 0
        if sink.can or known or sink.records == 0 or back.to >= back.beyond:
            continue
        records = sink.records if sink.published is None or sink.published.records is None else sink.published.records
        many = "it is not known how many records" if records is None else f"{records:,} record{'s' * (records != 1)}"
        last = back.beyond if sink.newest is None else min(back.beyond, sink.newest)
        until = "" if last == back.beyond else ", the newest that its target records"
        lines.append(f"{sink.step} ({sink.what}): {_epochs(back.to + 1, last)}{until}; {many}")
    return lines


def _epochs(first: int, last: int) -> str:
    return f"epochs {first} to {last}" if first < last else f"epoch {last}"


def left_behind(sinks: Sequence[SinkFacts]) -> list[str]:
    """What sinks had published to places that they no longer write to, a line for each. Pure."""
    return [
        f"{sink.step} ({sink.what}): {records:,} record{'s' * (records != 1)} in {place}, where it wrote then"
        for sink in sinks
        for place, records in sorted(sink.elsewhere.items())
    ]


def obstacles(sinks: Sequence[SinkFacts]) -> list[str]:
    """Why sinks that take output back cannot do so now. Pure."""
    return [f"{s.step} ({s.what}): {s.published.obstacle}" for s in sinks if s.can and s.published and s.published.obstacle]


def newest_published(published_by: Mapping[StepId, OutputSince], guarantee: Guarantee) -> Epoch:
    """The newest epoch that the sinks know of. Pure.

    At least once publishes an epoch's attempts under numbers of their own, far above those of epochs: a target that knows one of
    them would take everything that is published under the number of an epoch for something it has already."""
    found = Epoch(0)
    for step, published in published_by.items():
        epoch = newest_of(published, guarantee) or Epoch(0)
        if epoch >= PUBLICATIONS:
            raise ConfigError(
                f"the sink {step!r} has been published to with guarantee='at-least-once', and the job's is {guarantee!r} now",
                hint="keep guarantee='at-least-once', or give the sink another name and a target of its own",
            )
        found = max(found, epoch)
    return found


def newest_of(published: OutputSince | None, guarantee: Guarantee) -> Epoch | None:
    """The newest epoch that a sink knows of, whatever number it was published under. Pure."""
    if published is None or published.newest is None:
        return None
    return Epoch(published.newest // PUBLICATIONS) if guarantee == "at-least-once" else published.newest


# --- looking ------------------------------------------------------------------------------------------------------------------


def look_back(
    storage: Storage,
    head: Head,
    before: Manifest | None,
    job: JobId,
    config: JobConfig,
    committers: Mapping[StepId, Committer],
    descriptions: Mapping[StepId, str],
    elsewhere: Epoch,
    invocation: Invocation,
) -> Rewind | None:
    """Decide whether the job goes back; refuse, or ask, where that would repeat output. Nothing is changed yet.

    `elsewhere`: up to this one, epochs may have been committed where they are lost: this storage is a mirror."""
    newest = max(head.epochs, default=Epoch(0))
    published = newest_published(_published_by(committers, newest, config.guarantee), config.guarantee)
    back = plan_rewind(head, before, job, max(published, elsewhere), config)
    if published > newest:
        check_not_fenced(storage, newest)  # a driver that is still running has published since the head was read
        if not head.epochs and not asked_for(config, elsewhere):
            raise RepeatedOutputError(
                f"the job's epochs are gone: its sinks know epoch {published}, and {storage.uri}/{paths.EPOCHS} is empty",
                hint="put it back from a copy; or start with --fall-back, from the beginning: what was published is then taken "
                "back, where that can be done, and published again from the input that is still there",
            )
    if back is None:
        if config.repair and (head.manifest is None or head.manifest.repair is None):
            raise ConfigError(
                "there is nothing to repair: the job resumes from its newest epoch",
                hint="name the epoch from which output is to be replaced: --from @EPOCH --repair; "
                "with --again, if the job was last started from there",
            )
        return None
    if before is not None and back.to == before.epoch:
        check_was_finished(head, _line(storage, head, back.to), before, storage.uri)
    given_up = _given_up(storage, head, back)
    received = _received(given_up, head.renamed)
    published_by = _published_by(committers, back.to, config.guarantee)
    facts = [
        SinkFacts(
            step=step,
            what=descriptions.get(step, ""),
            can=isinstance(committer, RollsBack),
            published=published_by.get(step),
            newest=newest_of(published_by.get(step), config.guarantee),
            records=None if received is None else received.get(step, 0),
            elsewhere=_elsewhere(given_up, head.renamed, step, committer),
        )
        for step, committer in sorted(committers.items())
    ]
    _refuse_obstacles(back, facts)
    _refuse_repeats(back, facts, config, invocation)
    _tell(back, facts)
    _warn_of_removed(given_up, head.renamed, committers)
    return back


def _published_by(committers: Mapping[StepId, Committer], after: Epoch, guarantee: Guarantee) -> dict[StepId, OutputSince]:
    """What the sinks say. One that does not answer now says nothing: its commits will be tried again and again."""
    found = {}
    for step, committer in committers.items():
        if isinstance(committer, TellsPublished):
            try:
                found[step] = committer.published_after(last_publication(after, guarantee))
            except CorruptFileError:
                raise
            except PenstockError as error:
                log.warning("the sink %s does not say what it has published: %s", step, error)
    return found


def _line(storage: Storage, head: Head, down_to: Epoch) -> frozenset[Epoch]:
    """The retained epochs that led to the head, as far down as asked for."""
    found: set[Epoch] = set()
    manifest = head.manifest
    while manifest is not None:
        found.add(manifest.epoch)
        parent = manifest.parent
        manifest = load_manifest(storage, parent) if parent in head.epochs and parent >= down_to else None
    return frozenset(found)


def _given_up(storage: Storage, head: Head, back: Rewind) -> list[Manifest] | None:
    """The manifests of what is given up; None when not all can be read."""
    if head.manifest is None or head.manifest.epoch < back.beyond:
        return None
    try:
        line = _line(storage, head, Epoch(back.to + 1))
        return [load_manifest(storage, epoch) for epoch in sorted(line) if epoch > back.to]
    except CorruptFileError:
        return None


def _received(given_up: list[Manifest] | None, renamed: Mapping[str, str]) -> dict[str, int] | None:
    """How many records each step, as it is called now, received in these epochs; None when they are not known. Pure."""
    if given_up is None:
        return None
    found: dict[str, int] = {}
    for manifest in given_up:
        for step, metrics in manifest.metrics.items():
            called = renamed.get(step, step)
            found[called] = found.get(called, 0) + metrics.records_in
    return found


def _elsewhere(given_up: list[Manifest] | None, renamed: Mapping[str, str], step: StepId, committer: Committer) -> dict[str, int]:
    """What epochs that are given up published to places that the sink no longer writes to."""
    found: dict[str, int] = {}
    if isinstance(committer, KnowsPlaces):
        for manifest in given_up or ():
            for place, records in committer.elsewhere(by_new_name(manifest.committables, renamed).get(step, ())).items():
                found[place] = found.get(place, 0) + records
    return found


def _warn_of_removed(given_up: list[Manifest] | None, renamed: Mapping[str, str], committers: Mapping[StepId, Committer]) -> None:
    wrote = {renamed.get(step, step) for manifest in given_up or () for step in manifest.committables}
    for step in sorted(wrote - set(committers)):
        log.warning("the program no longer has the sink %s: what it published stays as it is", step)


def _refuse_obstacles(back: Rewind, facts: Sequence[SinkFacts]) -> None:
    if found := obstacles(facts):
        raise SinkError(f"the output cannot be reset to what it was in epoch {back.to}", detail="\n".join(found))


def _refuse_repeats(back: Rewind, facts: Sequence[SinkFacts], config: JobConfig, invocation: Invocation) -> None:
    moved = left_behind(facts)
    lines = [*repeated(back, facts), *moved]
    if not lines:
        return
    if not config.repeat_output:
        instead = "; or let a sink write where it wrote then: there it is taken back" if moved else ""
        refusal = RepeatedOutputError(
            f"going back to epoch {back.to} would publish again what these sinks cannot take back",
            detail="\n".join(lines),
            hint="--repeat-output (repeat_output=True) to do so; "
            f"or first remove from the targets what was written after that epoch{instead}",
        )
        if not invocation.confirmed(refusal, "Publish it again?"):
            raise refusal
    for line in lines:
        log.warning("output will be repeated: %s", line)


def _tell(back: Rewind, facts: Sequence[SinkFacts]) -> None:
    what = "its file output is replaced when the new one has caught up" if back.repair else "what can be taken back is"
    log.warning("the job goes back to epoch %d, from epoch %d: %s", back.to, back.beyond, what)
    for sink in facts:
        if sink.can and sink.published is not None and sink.published.epochs:
            epochs = "1 epoch" if sink.published.epochs == 1 else f"{sink.published.epochs} epochs"
            log.warning("%s: published since then: %s, %s records", sink.step, epochs, sink.published.records)


# --- acting -------------------------------------------------------------------------------------------------------------------


def turn_back(committers: Mapping[StepId, Committer], manifest: Manifest, guarantee: Guarantee) -> None:
    """After the manifest of a take-over that goes back: let the sinks follow. May be repeated."""
    back = manifest.back
    if back is None or only_claimed(manifest):
        return
    to, at = last_publication(back.to, guarantee), first_publication(manifest.epoch, guarantee)
    for step, committer in sorted(committers.items()):
        fail_point("rollback:before")
        try:
            if manifest.repair is not None and isinstance(committer, Repairs):
                committer.begin_repair(to, at)
            elif isinstance(committer, RollsBack):
                committer.roll_back(to, at)
            elif isinstance(committer, Fences):
                committer.fence(at)
        except PenstockError:
            raise
        except Exception as error:
            raise SinkError(
                f"the sink {step!r} could not go back to epoch {back.to}: {type(error).__name__}: {error}",
                hint="it is tried again when the job starts again",
            ) from error
        fail_point("rollback:done")


def first_publication(epoch: Epoch, guarantee: Guarantee) -> Epoch:
    """The least number under which an epoch publishes."""
    return Epoch(epoch * PUBLICATIONS) if guarantee == "at-least-once" else epoch


def last_publication(epoch: Epoch, guarantee: Guarantee) -> Epoch:
    """The greatest number under which an epoch publishes."""
    return Epoch((epoch + 1) * PUBLICATIONS - 1) if guarantee == "at-least-once" else epoch


def publication_of(order: EpochOrder) -> Epoch:
    """At least once: a number for what an attempt of an epoch publishes, before anybody knows when it will be committed.

    It is above those of all attempts before it, and none is above the next epoch to be committed."""
    return Epoch((order.head + 1) * PUBLICATIONS + order.plan - order.settled)
