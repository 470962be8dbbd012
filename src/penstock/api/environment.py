"""The environment: where a program starts, and how it is run."""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from penstock.api.job import Job
from penstock.api.stream import DataStream
from penstock.compile.in_process import NONE, RunOptions, applied
from penstock.compile.programs import running
from penstock.config import JobConfig
from penstock.connectors.collection.source import CollectionSource
from penstock.connectors.protocol import RejectsRecords, Source
from penstock.diagnosis.tracebacks import folding
from penstock.epochs.clock import Clock
from penstock.epochs.executor import Executor
from penstock.epochs.history import JobResult, Listener
from penstock.epochs.log_keeper import LogKeeper
from penstock.epochs.metrics_writer import MetricsWriter
from penstock.epochs.setup import Setup
from penstock.epochs.status_writer import StatusWriter
from penstock.errors import ConfigError, PlanError, UserCodeError, did_you_mean
from penstock.ids import StepId
from penstock.plan.definition import DEAD_LETTERS, Definition
from penstock.plan.nodes import Graph, Input
from penstock.plan.schemas import Known, schema_of
from penstock.running.driving import Driver
from penstock.runtime.operators.sink import SinkStep
from penstock.runtime.operators.source import SourceStep
from penstock.storage import open_storage
from penstock.timing.durations import to_ms
from penstock.timing.watermarks import Watermarks

T = TypeVar("T")


class StreamEnvironment:
    """A program in the making. Settings are those of `JobConfig`.

    >>> env = StreamEnvironment("doubles", executor="inline", parallelism=2)
    >>> env.from_collection([1, 2, 3]).map(lambda n: 2 * n).execute_and_collect()
    [2, 4, 6]
    """

    def __init__(self, name: str = "job", *, spark: Any = None, **settings: Any) -> None:
        self._config = _configured(JobConfig(name=name), settings)
        self._spark = spark
        self._graph = Graph()
        self._schemas: Known = {}
        self._options = RunOptions.current()

    @property
    def config(self) -> JobConfig:
        """The settings, with those of the command line on top."""
        return _configured(self._config, self._options.settings)

    @property
    def graph(self) -> Graph:
        return self._graph

    @property
    def job(self) -> Job:
        """The job that this program was run as, from outside: works while `execute` runs in another thread."""
        uri = self.config.storage
        if uri is None:
            raise ConfigError("the job has no storage of its own", hint="give storage= a folder or URI")
        return Job(uri)

    # --- sources -----------------------------------------------------------------------------------------------------------

    def from_source(
        self,
        source: Source,
        *,
        watermarks: Watermarks[Any] | None = None,
        name: str | None = None,
        previous_names: Sequence[str] = (),
    ) -> DataStream[Any]:
        """A stream from a source; `watermarks` gives its records their event time.

        `previous_names`: what the source was called; it goes on from where it was.
        """
        if isinstance(source, type) or not isinstance(source, Source):
            raise PlanError(
                f"{source!r} is not a source",
                hint="for example FileSource(...), GeneratorSource(...) or CollectionSource(...); "
                "your own has all that penstock.connectors.protocol.Source has",
            )
        sets_aside = isinstance(source, RejectsRecords) and source.on_bad_record == "dead_letter"
        definition = SourceStep(source=source, watermarks=watermarks, errors="dead_letter" if sets_aside else "fail")
        return DataStream(self, self._add(definition, name=name, label="source", previous_names=previous_names))

    def from_collection(
        self,
        values: Iterable[T],
        *,
        watermarks: Watermarks[Any] | None = None,
        name: str | None = None,
        partitions: int = 1,
        previous_names: Sequence[str] = (),
    ) -> DataStream[T]:
        """A bounded stream of the given values."""
        source = CollectionSource(list(values), partitions=partitions)
        return self.from_source(source, watermarks=watermarks, name=name, previous_names=previous_names)

    def from_dataframe(
        self,
        frame: Any,
        *,
        watermarks: Watermarks[Any] | None = None,
        name: str | None = None,
        previous_names: Sequence[str] = (),
    ) -> DataStream[Any]:
        """A Spark DataFrame: a batch one is bounded input, a streaming one a Spark feed."""
        from penstock.connectors.spark_feed.source import DataFrameSource, SparkStreamSource

        source: Source = SparkStreamSource.of(frame) if frame.isStreaming else DataFrameSource(frame)
        return self.from_source(source, watermarks=watermarks, name=name, previous_names=previous_names)

    def _add(
        self, definition: Definition, *inputs: Input, name: str | None, label: str, previous_names: Sequence[str] = ()
    ) -> StepId:
        """The program has one step more. One that names columns is refused if they are known not to be there."""
        graph = self._graph.add(definition, inputs, name=name, label=label, previous_names=previous_names)
        step = graph.newest.step
        if definition.names_columns:
            try:
                schema_of(graph, Input(step=step), self._schemas)
            except PlanError as error:
                raise type(error)(f"step {step!r}: {error.what}", detail=error.detail, hint=error.hint) from error
        self._graph = graph
        return step

    # --- running -----------------------------------------------------------------------------------------------------------

    def explain(self) -> str:
        """Steps, stages, exchanges, state and ids, as text."""
        from penstock.compile.explain import explain_text

        return explain_text(self._graph, self.config)

    @folding
    def execute(
        self, *, clock: Clock | None = None, executor: Executor | None = None, listener: Listener | None = None, **settings: Any
    ) -> JobResult:
        """Run the program until its input ends, it is stopped, or it fails for good."""
        options = self._options
        if options.instead is not None:
            return options.instead(self._with(settings))  # type: ignore[no-any-return]
        config = _configured(_configured(self._config, settings), options.settings)
        if config.drain and not config.until_idle:
            raise ConfigError(
                "drain says what to do when there is nothing left to read, but the job waits for more",
                hint="say until_idle as well, or drain the job while it runs: penstock stop JOB --drain",
            )
        if not any(isinstance(node.definition, SinkStep) for node in self._graph):
            raise PlanError("the program writes nothing", hint="end a stream with sink_to(...), print() or execute_and_collect()")
        _check_dead_letters(self._graph)
        heard_by = (_former.value or options.listeners) + ((listener,) if listener is not None else ())
        with _storage_uri(config) as uri:
            storage = open_storage(uri)
            if config.storage is not None:
                heard_by += (StatusWriter(storage, config.name), MetricsWriter(storage, config.name), LogKeeper(storage))
            setup = Setup(
                graph=self._graph,
                config=config,
                storage=storage,
                executor=executor or self._executor(config),
                clock=clock or Clock(),
                listeners=heard_by,
                python_paths=_python_paths(),
                program=running(self._graph, options.settings),
                invocation=options.invocation,
            )
            try:
                with applied(NONE):
                    return Driver(setup).run()
            except UserCodeError as error:
                if config.storage is not None:  # the epoch that failed is still there to be read
                    error.add_note(f"to look into it: penstock replay {config.storage}@next --pdb")
                raise

    def _with(self, settings: dict[str, Any]) -> StreamEnvironment:
        """The same program with other settings."""
        env = copy.copy(self)
        env._config = _configured(self._config, settings)
        env._options = replace(self._options, instead=None)
        return env

    def _executor(self, config: JobConfig) -> Executor:
        if config.executor == "inline":
            from penstock.executors.inline import InlineExecutor

            return InlineExecutor()
        from penstock.executors.spark.executor import SparkExecutor

        return SparkExecutor(
            config.name,
            config.master,
            config.spark_config,
            self._spark,
            stall_s=to_ms(config.stall_after) / 1000,
            close_s=to_ms(config.stop_within) / 1000,
        )


def _check_dead_letters(graph: Graph) -> None:
    """What a source cannot read is not to vanish."""
    read = {edge.step for node in graph for edge in node.inputs if edge.tag == DEAD_LETTERS}
    for node in graph:
        if isinstance(node.definition, SourceStep) and node.definition.errors == "dead_letter" and node.step not in read:
            raise PlanError(
                f"the dead letters of the source {node.step!r} go nowhere",
                hint='write them somewhere: stream.dead_letters().sink_to(...); or choose on_bad_record="skip"',
            )


class _Listeners:
    """`listeners`, as an example of 0.1 used it: kept for one release."""

    value: tuple[Listener, ...] = ()

    def get(self) -> tuple[Listener, ...]:
        return self.value or RunOptions.current().listeners

    def set(self, value: tuple[Listener, ...]) -> tuple[Listener, ...]:
        before, self.value = self.value, value
        return before

    def reset(self, before: tuple[Listener, ...]) -> None:
        self.value = before


_former = _Listeners()


def __getattr__(name: str) -> Any:
    if name != "listeners":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn("listeners is going away: give execute(listener=...)", DeprecationWarning, stacklevel=2)
    return _former


def _configured(config: JobConfig, settings: Mapping[str, Any]) -> JobConfig:
    known = {field.name for field in fields(JobConfig)}
    unknown = sorted(set(settings) - known)
    if unknown:
        hints = [did_you_mean(unknown[0], known), f"known: {', '.join(sorted(known))}"]
        raise ConfigError(f"unknown setting {unknown[0]!r}", hint="\n".join(hint for hint in hints if hint))
    return replace(config, **settings)


@contextlib.contextmanager
def _storage_uri(config: JobConfig) -> Iterator[str]:
    """The job's storage; without one, a temporary folder that goes with the run."""
    if config.storage is not None:
        yield config.storage
        return
    folder = tempfile.mkdtemp(prefix=f"penstock-{config.name}-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _python_paths() -> tuple[str, ...]:
    """Where workers on this machine find the modules beside the program."""
    main = sys.modules.get("__main__")
    program = getattr(main, "__file__", None)
    found = [os.path.dirname(os.path.abspath(program))] if program else []
    return tuple(dict.fromkeys([*found, *(os.path.abspath(path) for path in sys.path if path and os.path.isdir(path))]))
