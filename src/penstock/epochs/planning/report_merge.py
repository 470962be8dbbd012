"""From the reports of an epoch's tasks to the next manifest. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from penstock.ids import Milliseconds
from penstock.jobs.manifest import InFlight, StateLayout
from penstock.jobs.step_metrics import StepMetrics
from penstock.runtime.loops.laps import in_order_of_laps
from penstock.runtime.messages import LoopReport, PartitionState, TaskReport
from penstock.state.files.durable import FileRef

TAIL = 3
"""How many files of a chain are sent to the tasks: enough for a store that is up to date or nearly so."""


def next_layout(
    before: StateLayout, files: Iterable[tuple[tuple[int, int], FileRef]], due: list[list[dict[int, Milliseconds]]]
) -> StateLayout:
    """The state layout with further files, by (stage, partition), and the timers after them."""
    chains = [[list(chain) for chain in stage] for stage in before.chains]
    for (stage, partition), ref in files:
        chains[stage][partition].append(ref)
    return msgspec.structs.replace(before, chains=chains, next_due=due)


def files_of(reports: list[TaskReport]) -> dict[tuple[int, int], FileRef]:
    """The deltas of an epoch, by (stage, partition)."""
    return {(report.stage, report.partition): report.state for report in reports if report.state is not None}


def next_due(before: StateLayout, reports: list[TaskReport]) -> list[list[dict[int, Milliseconds]]]:
    """When the first timers are due after the epoch, by stage and partition."""
    due = [[dict(times) for times in stage] for stage in before.next_due]
    for report in in_order_of_laps(reports):
        due[report.stage][report.partition] = report.next_due
    return due


def partition_states(
    layout: StateLayout, due: list[list[dict[int, Milliseconds]]], layers: dict[tuple[int, int], list[FileRef]]
) -> list[list[PartitionState]]:
    """What each task gets of its state: the end of its committed chain, and the layers on top."""
    return [
        [
            PartitionState(
                tail=chain[-TAIL:],
                whole=len(chain) <= TAIL,
                layers=layers.get((stage, partition), []),
                next_due=due[stage][partition],
            )
            for partition, chain in enumerate(chains)
        ]
        for stage, chains in enumerate(layout.chains)
    ]


def watermarks_of(reports: list[TaskReport]) -> dict[str, Milliseconds]:
    """The least watermark of each step over its tasks that have a say; if none has, over all."""
    active: dict[str, Milliseconds] = {}
    resting: dict[str, Milliseconds] = {}
    for report in reports:
        for found, watermarks in ((active, report.watermarks), (resting, report.resting)):
            for step, watermark in watermarks.items():
                found[step] = min(watermark, found.get(step, watermark))
    return {**resting, **active}


def loops_of(reports: list[TaskReport]) -> dict[str, InFlight]:
    """What is in the loops."""
    found: dict[str, LoopReport] = {}
    for report in reports:
        for loop, known in report.loops.items():
            found[loop] = known.plus(found.get(loop, LoopReport()))
    return {loop: InFlight(records=known.records, waits=known.waits) for loop, known in found.items()}


def metrics_of(reports: list[TaskReport]) -> dict[str, StepMetrics]:
    """The counts of each step, summed over its tasks."""
    found: dict[str, StepMetrics] = {}
    for report in reports:
        add_metrics(report.metrics, found)
    return found


def add_metrics(metrics: Mapping[str, StepMetrics], into: dict[str, StepMetrics]) -> None:
    for step, counted in metrics.items():
        total = into.setdefault(step, StepMetrics(counters={}))
        total.records_in += counted.records_in
        total.records_out += counted.records_out
        total.skipped += counted.skipped
        total.dead_letters += counted.dead_letters
        total.busy_s += counted.busy_s
        for name, count in counted.counters.items():
            total.counters[name] = total.counters.get(name, 0) + count


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
    for report in in_order_of_laps(reports):
        for step, data in report.volatile.items():
            found.setdefault(step, []).append(data)
    return found


def committables_of(reports: list[TaskReport]) -> dict[str, list[object]]:
    """What the sinks staged."""
    found: dict[str, list[object]] = {}
    for report in in_order_of_laps(reports):
        for step, committable in report.committables.items():
            found.setdefault(step, []).append(committable)
    return found
