"""From the reports of an epoch's tasks to the next manifest. Pure."""

from __future__ import annotations

import msgspec

from penstock.ids import Milliseconds
from penstock.runtime.manifest import StateLayout
from penstock.runtime.orders import PartitionState, StepMetrics, TaskReport

TAIL = 3
"""How many files of a chain are sent to the tasks: enough for a store that is up to date or nearly so."""


def next_layout(before: StateLayout, reports: list[TaskReport]) -> StateLayout:
    """The state layout with the files and timers that the epoch's tasks reported."""
    chains = [[list(chain) for chain in stage] for stage in before.chains]
    due = [[dict(times) for times in stage] for stage in before.next_due]
    for report in reports:
        if report.state is not None:
            chains[report.stage][report.partition].append(report.state)
        due[report.stage][report.partition] = report.next_due
    return msgspec.structs.replace(before, chains=chains, next_due=due)


def partition_states(layout: StateLayout) -> list[list[PartitionState]]:
    """What each task is told of its committed state."""
    return [
        [
            PartitionState(tail=chain[-TAIL:], whole=len(chain) <= TAIL, next_due=due)
            for chain, due in zip(chains, dues, strict=True)
        ]
        for chains, dues in zip(layout.chains, layout.next_due, strict=True)
    ]


def watermarks_of(reports: list[TaskReport]) -> dict[str, Milliseconds]:
    """The least watermark of each step over its tasks that have a say."""
    found: dict[str, Milliseconds] = {}
    for report in reports:
        for step, watermark in report.watermarks.items():
            found[step] = min(watermark, found.get(step, watermark))
    return found


def metrics_of(reports: list[TaskReport]) -> dict[str, StepMetrics]:
    """The counts of each step, summed over its tasks."""
    found: dict[str, StepMetrics] = {}
    for report in reports:
        for step, metrics in report.metrics.items():
            total = found.setdefault(step, StepMetrics(counters={}))
            total.records_in += metrics.records_in
            total.records_out += metrics.records_out
            total.skipped += metrics.skipped
            for name, count in metrics.counters.items():
                total.counters[name] = total.counters.get(name, 0) + count
    return found


def counters_of(reports: list[TaskReport], into: dict[str, dict[str, int]]) -> None:
    """Add the users' counters to the totals of the run."""
    for report in reports:
        for step, metrics in report.metrics.items():
            for name, count in metrics.counters.items():
                totals = into.setdefault(step, {})
                totals[name] = totals.get(name, 0) + count


def volatile_of(reports: list[TaskReport]) -> dict[str, list[object]]:
    """Output of volatile sinks, which goes to the driver and never to disk."""
    found: dict[str, list[object]] = {}
    for report in sorted(reports, key=lambda r: (r.stage, r.partition)):
        for step, data in report.volatile.items():
            found.setdefault(step, []).append(data)
    return found
