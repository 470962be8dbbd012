"""Repair: a corrected program replaces the file output published since an epoch, all of it at once.

    take-over from epoch K: old output stays shown, new output is held back
      → epochs, until every source has reached the position that the old head had
      → in that epoch: sinks publish, then show what was held back instead of the old
      → epochs as ever

Where the repair is kept: `Manifest.repair` says that it is under way and until when, the log of each file sink what is held back.
Both survive a crash; a start from the newest epoch continues the repair.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import msgspec

from penstock.compile.renames import by_new_name
from penstock.config import Guarantee
from penstock.connectors.protocol import Committer, Repairs
from penstock.epochs.planning.inputs import SourceInput, SourcePlan
from penstock.epochs.starting.rewind import last_publication
from penstock.failpoints import fail_point
from penstock.ids import Epoch, StepId
from penstock.jobs.manifest import Manifest, Repair, Rewind
from penstock.jobs.terms import Head

log = logging.getLogger("penstock")


def begun(back: Rewind | None, at: Epoch, before: Manifest | None, head: Head) -> Repair | None:
    """The repair of a take-over epoch: a new one, or what was under way; sources under the names they have now. Pure."""
    if back is None:
        carried = before.repair if before is not None else None
        if carried is None or carried.until is None:
            return carried
        return msgspec.structs.replace(carried, until=by_new_name(carried.until, head.renamed))
    if not back.repair:
        return None
    goal = goal_of(head.manifest, back)
    until = None if goal is None else by_new_name(goal, head.renamed)
    reached = {step: state.position for step, state in before.sources.items()} if before is not None else {}
    if (before is not None and before.finished) or (until is not None and until.items() <= reached.items() and not _rests(head)):
        return None  # nothing was read since: then there is nothing to catch up with
    return Repair(to=back.to, at=at, until=until)


def _rests(head: Head) -> bool:
    """Does a source of the old head have a rest? Then its position alone does not say what was read."""
    return head.manifest is not None and any(state.rest for state in head.manifest.sources.values())


def goal_of(head: Manifest | None, back: Rewind) -> dict[str, object] | None:
    """Where the sources must get; None when the old head cannot be read.

    While a repair is under way the old output is still that of the head before it. Pure.
    """
    if head is not None and head.repair is not None and head.repair.done is None:
        return head.repair.until
    if head is None or head.epoch < back.beyond:
        return None
    return {step: state.position for step, state in head.sources.items()}


def caught_up(repair: Repair | None, sources: Sequence[SourceInput], plans: Mapping[str, SourcePlan], *, ended: bool) -> bool:
    """Whether the epoch that is planned now ends a repair that is under way."""
    if repair is None or repair.done is not None:
        return False
    if ended:
        return True
    until = repair.until
    if until is None:
        return all(plans[source.step].nothing_left for source in sources)
    return all(source.caught_up(plans[source.step], until[source.step]) for source in sources if source.step in until)


def following(repair: Repair | None, epoch: Epoch, *, ends: bool) -> Repair | None:
    """What the manifest of the next epoch says. Pure."""
    if repair is None or repair.done is not None or not ends:
        return repair
    return msgspec.structs.replace(repair, until=None, done=epoch)


def finish_repair(committers: Mapping[StepId, Committer], manifest: Manifest, guarantee: Guarantee) -> None:
    """After the sinks of an epoch are committed: if it ended a repair, show what was held back. May be repeated."""
    repair = manifest.repair
    if repair is None or repair.done is None:
        return
    for step, committer in sorted(committers.items()):
        if isinstance(committer, Repairs) and committer.repairing():
            fail_point("repair:before-switch")
            committer.finish_repair(last_publication(manifest.epoch, guarantee))
            fail_point("repair:switched")
            log.warning("%s: what was published after epoch %d is replaced (epoch %d)", step, repair.to, manifest.epoch)


def describe(repair: Repair | None) -> str:
    """For people: one line, empty when nothing is under way."""
    if repair is None or repair.done is not None:
        return ""
    return f"repair since epoch {repair.at}: file output published after epoch {repair.to} stays until the new one has caught up"
