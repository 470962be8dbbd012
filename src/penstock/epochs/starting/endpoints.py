"""The two ends of a job on the driver: its sources' enumerators and its sinks' committers."""

from __future__ import annotations

from penstock.compile.order import order_of
from penstock.config import JobConfig
from penstock.connectors.protocol import Committer, CommitterContext, SourceContext
from penstock.epochs.executor import Executor, HasSession
from penstock.epochs.planning.inputs import SourceInput
from penstock.ids import StepId, Term
from penstock.plan.nodes import Graph
from penstock.runtime.job import CompiledJob
from penstock.runtime.messages import term_of_attempt
from penstock.runtime.operators.sink import SinkStep
from penstock.runtime.operators.source import SourceStep
from penstock.storage import Storage


def open_sources(graph: Graph, config: JobConfig, storage: Storage, job: CompiledJob, executor: Executor) -> list[SourceInput]:
    found = []
    paced = order_of(graph).paced if config.guarantee != "at-most-once" else frozenset()
    for node in graph:
        definition = node.definition
        if isinstance(definition, SourceStep):
            in_order = node.step in paced
            context = SourceContext(
                job=job.job,
                step=job.known_to_others(node.step),
                storage=storage,
                parallelism=config.parallelism,
                ordering="time" if in_order else "none" if definition.watermarks is None else "partition",
                local_dir=config.local_dir,
                spark=executor.session if isinstance(executor, HasSession) else None,
            )
            found.append(SourceInput(node.step, definition, context, paced=in_order))
    return found


def open_committers(graph: Graph, storage: Storage, job: CompiledJob, term: Term) -> dict[StepId, Committer]:
    found: dict[StepId, Committer] = {}
    for node in graph:
        definition = node.definition
        if isinstance(definition, SinkStep):
            context = CommitterContext(
                job=job.job,
                step=job.known_to_others(node.step),
                storage=storage,
                job_name=job.name,
                sweepable=lambda attempt: term_of_attempt(attempt) < term,
            )
            found[node.step] = definition.sink.committer(context)
    return found


def describe_sinks(graph: Graph) -> dict[StepId, str]:
    return {node.step: node.definition.sink.describe() for node in graph if isinstance(node.definition, SinkStep)}
