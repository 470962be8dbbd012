"""The manifests a running driver writes: of an epoch that has run, and of one that is passed over."""

from __future__ import annotations

import msgspec

from penstock.config import JobConfig
from penstock.epochs.planning.epoch_planner import Decision
from penstock.epochs.planning.inputs import merge_clocks, with_rests
from penstock.epochs.planning.report_merge import committables_of, loops_of, metrics_of, next_due, watermarks_of
from penstock.epochs.starting.output_replacement import following
from penstock.ids import Epoch, Milliseconds, Term
from penstock.jobs.left_out import left_out_by
from penstock.jobs.manifest import Manifest, SourceState, version_of
from penstock.runtime.messages import Reached, TaskReport


def manifest_after(
    head: Manifest, decision: Decision, reports: list[TaskReport], config: JobConfig, created_ms: Milliseconds
) -> Manifest:
    """The manifest of an epoch that has run on top of `head`, but for the files of its state. Pure."""
    order, metrics, loops = decision.order, metrics_of(reports), loops_of(reports)
    clocks: dict[str, dict[str, object]] = {}
    for report in reports:
        for step, reported in report.clocks.items():
            clocks.setdefault(step, {}).update(reported)
    reached: dict[str, dict[str, Reached]] = {}
    for report in reports:
        for step, lanes in report.reached.items():
            reached.setdefault(step, {}).update(lanes)
    sources = with_rests(merge_clocks(decision.sources, clocks), order.sources, reached)
    return Manifest(
        version=version_of(head.state, sources),
        job=head.job,
        epoch=order.epoch,
        term=order.term,
        plan=order.plan,
        parent=head.epoch,
        processing_time=order.processing_time,
        created_ms=created_ms,
        sources=sources,
        watermarks={**head.watermarks, **watermarks_of(reports)},
        state=msgspec.structs.replace(head.state, chains=[], next_due=next_due(head.state, reports)),
        committables=committables_of(reports) if config.guarantee != "at-least-once" else {},
        read=order.sources,
        metrics=metrics,
        finished=decision.final and not any(loop.records for loop in loops.values()),
        program=head.program,
        restored=head.restored,
        repair=following(head.repair, order.epoch, ends=decision.ends_repair),
        drained=decision.drained,
        loops=loops,
        laps=order.laps,
        left_out=head.left_out.plus(left_out_by(metrics)),
        tables=order.tables,
    )


def manifest_without(
    head: Manifest, sources: dict[str, SourceState], term: Term, plan: int, created_ms: Milliseconds
) -> Manifest:
    """At most once: of an epoch that failed, and whose input is not read again. Pure."""
    sources = {**head.sources, **sources}
    return Manifest(
        version=version_of(head.state, sources),
        job=head.job,
        epoch=Epoch(head.epoch + 1),
        term=term,
        plan=plan,
        parent=head.epoch,
        processing_time=head.processing_time,
        created_ms=created_ms,
        sources=sources,
        watermarks=head.watermarks,
        state=head.state,
        program=head.program,
        restored=head.restored,
        repair=head.repair,
        loops=head.loops,
        left_out=head.left_out,
        tables=head.tables,
    )
