"""May an epoch be committed? A pure function of the reports.

Laws: an epoch is committed only if
- every task of every stage reported, and all consumers of a task consumed the same attempt of it: the one whose report is here;
- all partitions of a step have changed its broadcast state in the same way.
"""

from __future__ import annotations

from penstock import errors
from penstock.diagnosis.tracebacks import whole_tracebacks
from penstock.errors import EpochFailedError, PenstockError, StateError
from penstock.runtime.job import CompiledJob
from penstock.runtime.messages import Failure, TaskReport


def check_reports(job: CompiledJob, reports: list[TaskReport], laps: int = 1) -> None:
    """Raise `EpochFailedError` unless the reports are whole and agree; raise the user's error if there is one."""
    for report in sorted(reports, key=lambda r: (r.stage, r.partition)):
        if report.failure is not None:
            raise revive(report.failure)
    found = {(report.stage, report.lap, report.partition): report for report in reports}
    chain = job.chain(laps)
    stores = [(stage.index, 0) for stage in job.stages if not stage.steps]
    wanted = {(*place, partition) for place in (*chain, *stores) for partition in range(job.parallelism)}
    if found.keys() != wanted or len(reports) != len(wanted):
        raise EpochFailedError(
            "not every task reported exactly once",
            detail=f"missing (stage, lap, partition): {sorted(wanted - found.keys())}; reports: {len(reports)} of {len(wanted)}",
        )
    for place in chain:
        check_copies([found[*place, partition] for partition in range(job.parallelism)])
    upstreams = dict(zip(chain[1:], chain, strict=False))
    for (stage, lap, partition), report in found.items():
        if (stage, lap) not in upstreams:
            continue
        for upstream in range(job.parallelism):
            consumed, reported = report.consumed.get(upstream), found[*upstreams[stage, lap], upstream].attempt
            if consumed != reported:
                raise EpochFailedError(
                    f"stage {stage} partition {partition} consumed attempt {consumed} of stage {stage - 1} partition {upstream}, "
                    f"another task consumed {reported}",
                    hint="a stage was run again after a loss while some tasks had already read it; the epoch is planned anew",
                )


def check_copies(reports: list[TaskReport]) -> None:
    """Broadcast state is the same in all partitions as long as all change it alike."""
    first = reports[0]
    for step, digest in first.copies.items():
        others = [report.partition for report in reports if report.copies[step] != digest]
        if others:
            raise StateError(
                f"the broadcast state of step {step!r} has been changed in different ways by its partitions",
                detail=f"partitions that differ from partition {first.partition}: {', '.join(map(str, others))}",
                hint="let it depend on broadcast records and on itself only: on no key, partition, clock or random number",
            )


def revive(failure: Failure) -> PenstockError:
    """The error that a worker reported."""
    kind = getattr(errors, failure.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, PenstockError)):
        kind = PenstockError
    error: PenstockError = kind(failure.what, detail=failure.detail, hint=failure.hint, nature=failure.nature)
    if note := failure.trace if whole_tracebacks() else failure.frames:
        error.add_note(note)
    return error
