"""From a job and an epoch to a `Replay`."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from penstock.compile.explain import user_function
from penstock.compile.in_process import Planned, within
from penstock.compile.programs import find_program
from penstock.compile.renames import as_called_now
from penstock.epochs.planning.report_merge import metrics_of
from penstock.errors import ConfigError, StorageError
from penstock.ids import Epoch, Milliseconds, StepId
from penstock.jobs.pins import kept_epochs, pin
from penstock.jobs.terms import JobInfo, job_in
from penstock.plan.nodes import Graph
from penstock.snapshots.replay.entries import StateForms
from penstock.snapshots.replay.recording import Recording
from penstock.snapshots.replay.rerun import (
    NextEpoch,
    Ran,
    Rerunnable,
    close_stores,
    compile_on,
    plan_next,
    run_epochs,
    watchable,
)
from penstock.snapshots.replay.result import NO_KEY, Replay, StepReplay, Verdict
from penstock.snapshots.replay.selection import NEXT, Choice, Wanted, choose, parse_target
from penstock.snapshots.replay.shadow import ShadowStorage
from penstock.snapshots.replay.verifying import verify
from penstock.snapshots.replay.watching.debugger import Debugger
from penstock.snapshots.replay.watching.step_observer import StepObserver
from penstock.snapshots.replay.watching.trace import StepTrace, key_filter, key_type_of
from penstock.snapshots.replay.whose_program import choose_program
from penstock.state.encoding.keys import key_codec
from penstock.storage import Storage, open_storage

LIMIT = 1_000
"""How many events and changes of each step are kept by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What is to be looked at, and how closely."""

    step: str | None = None
    key: Any = NO_KEY
    limit: int | None = LIMIT
    records: int | None = None
    record: str | None = None
    trust: bool = False
    debugger: Debugger | None = None
    now_ms: Callable[[], Milliseconds] = lambda: round(time.time() * 1000)


def replay(
    job: str | os.PathLike[str],
    epoch: Wanted | None = None,
    *,
    step: str | None = None,
    key: Any = NO_KEY,
    limit: int | None = LIMIT,
    app: str | None = None,
    arguments: list[str] | None = None,
    env: Planned | None = None,
    records: int | None = None,
    record: str | None = None,
    trust: bool = False,
    debugger: Debugger | None = None,
) -> Replay:
    """Run a kept epoch of a job again, from the snapshot before it and the same input, without touching the job.

    `job` is its storage, and `epoch` a number, "latest", or "next": what the job would do next, for a job that fails there.
    `job` may also be `JOB@EPOCH`.

    The program is `env`, a `StreamEnvironment`; or `app`, a file, with `arguments`; or the one that wrote the epoch, if a file
    below the current folder has the content that was recorded. `trust`: the storage may name program and arguments, and state
    that is kept by pickle is loaded. Both run code of whoever can write there.
    `step` and `key` choose what is looked at; `limit` how many events of a step are kept (None: all). `record` names a file that
    keeps the step's part as a test case, for `penstock.testing.replay_recorded`. `records`: how much the next epoch is to read,
    at most.
    """
    target, named = parse_target(os.fspath(job))
    wanted = epoch if epoch is not None else named
    if wanted is None:
        raise ConfigError("which epoch is to be replayed?", hint="give a number, 'latest' or 'next', for example JOB@latest")
    if epoch is not None:
        target = os.fspath(job)
    if record is not None and step is None:
        raise ConfigError("a case is recorded of one step", hint="name it with step=, or --step")
    options = Options(
        step=step,
        key=key,
        limit=limit,
        records=records,
        record=None if record is None else os.path.abspath(record),
        trust=trust,
        debugger=debugger,
    )
    storage = open_storage(target)
    info = job_in(storage)
    choice = choose(storage, wanted)
    program = find_program(storage, choice.program)
    with ExitStack() as held:
        notes = _hold(storage, choice, held)
        if env is not None:
            return _replay(env, storage, info, choice, options, notes)
        started = choose_program(program, storage, app=app, arguments=arguments, trust=trust, target=f"{target}@{wanted}")

        def found(planned: Planned) -> Replay:
            return _replay(planned, storage, info, choice, options, [*started.notes, *notes])

        return within(
            found,
            started.path,
            started.arguments,
            module=started.module,
            folder=started.folder,
            settings=started.settings,
        )


def _hold(storage: Storage, choice: Choice, held: ExitStack) -> list[str]:
    """Pin what is read, so that a running job keeps it. What cannot be pinned is said."""
    done = set(kept_epochs(storage)[1])
    for manifest in (choice.parent, choice.committed):
        if manifest is None or manifest.epoch not in done:  # one whose output waits for its sink is not retired meanwhile
            continue
        try:
            held.enter_context(pin(storage, manifest.epoch, "replay"))
        except StorageError as error:
            return [f"the epoch could not be pinned, and a running job may retire it meanwhile: {error.what}"]
    return []


def _replay(planned: Planned, storage: Storage, info: JobInfo, choice: Choice, options: Options, notes: list[str]) -> Replay:
    """Inside the program, at its `execute()`."""
    if planned.config.name != info.name:
        raise ConfigError(
            f"the program runs the job {planned.config.name!r}, and {storage.uri} holds the job {info.name!r}",
            hint="name the right program with --app; of a program with several jobs only the first can be replayed",
        )
    notes = [*notes, *_elsewhere(planned, storage)]
    choice = choice.as_called_now(planned.graph)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-replay-"))
        stack.callback(close_stores, folder)
        shadow = ShadowStorage(storage, os.path.join(folder, "storage"))
        choice = replace(choice, parent=as_called_now(choice.parent, planned.graph))
        following: NextEpoch | None = None
        inputs = choice.inputs
        if choice.wanted == NEXT:
            local, now = os.path.join(folder, "local"), options.now_ms()
            following = plan_next(planned, info, choice.parent, shadow, local, now, options.records, trust=options.trust)
            inputs = (following.input,)
            choice = Choice(wanted=NEXT, parent=choice.parent, inputs=inputs)
        compiled = compile_on(planned.graph, info, choice.parent, shadow, os.path.join(folder, "local"), trust=options.trust)
        if compiled.dropped:
            notes = [*notes, f"the program no longer claims the state {', '.join(compiled.dropped)}"]
        if compiled.migrated:
            notes = [*notes, f"the state {', '.join(compiled.migrated)} was migrated for this program"]
        notes = [*notes, *_asked_again(compiled.graph)]
        traces = _traces(compiled, choice, options)
        job = watchable(compiled.job, {step for step, trace in traces.items() if trace.debugger or trace.tape})
        ran = run_epochs(
            job,
            choice.parent,
            compiled.layout,
            inputs,
            lambda operator: StepObserver(traces[operator.step], operator),
            options.debugger,
        )
        return _result(storage, info, choice, compiled, traces, ran, following, options, notes, shadow)


def _elsewhere(planned: Planned, storage: Storage) -> list[str]:
    """A program that keeps its job in another place may be another one: a copy is replayed, or it has several jobs."""
    own = planned.config.storage
    if own is None or open_storage(own).uri == storage.uri:
        return []
    return [f"the program runs its job in {own}, and what is replayed is in {storage.uri}"]


def _asked_again(graph: Graph) -> list[str]:
    """What other systems answer is not kept."""
    return [
        f"the step {node.step!r} asks another system again, and may be answered otherwise than it was"
        for node in graph
        if node.definition.asks_outside
    ]


def _traces(compiled: Rerunnable, choice: Choice, options: Options) -> dict[StepId, StepTrace]:
    """What is noted of each step; closely, of the one that was asked for."""
    steps = {node.step: node for node in compiled.graph}
    if options.step is not None and options.step not in steps:
        raise ConfigError(f"the program has no step {options.step!r}", detail=f"its steps: {', '.join(steps)}")
    forms = StateForms.of(compiled.graph, compiled.ids)
    by_key = {
        step for step, node in steps.items() if any(i.exchange is not None and i.exchange.kind == "key_by" for i in node.inputs)
    }
    made: dict[StepId, StepTrace] = {}
    for step, node in steps.items():
        definition = node.definition
        chosen = options.step == step or (options.step is None and (options.key is NO_KEY or step in by_key))
        codec = key_codec(key_type_of(definition))
        wanted = None
        if options.key is not NO_KEY and chosen:
            if step not in by_key:
                raise ConfigError(f"the step {step!r} has no keys", hint="--key is for steps behind a key_by")
            wanted = key_filter(options.key, codec)
        tape = None
        if options.record is not None and options.step == step:
            own = StateForms({number: form for number, form in forms.items() if form.step == step})
            tape = Recording(definition, own, codec, wanted)
        stops = options.debugger if chosen and (options.step is not None or options.key is not NO_KEY) else None
        made[step] = StepTrace(
            result=StepReplay(
                step=step, kind=definition.kind, function=user_function(definition.function()), keyed=step in by_key
            ),
            definition=definition,
            forms=forms,
            shown=choice.shown,
            wanted=wanted,
            limit=(None if tape is not None else options.limit) if chosen else 0,
            debugger=stops,
            tape=tape,
        )
    return made


def _result(
    storage: Storage,
    info: JobInfo,
    choice: Choice,
    compiled: Rerunnable,
    traces: dict[StepId, StepTrace],
    ran: Ran,
    following: NextEpoch | None,
    options: Options,
    notes: list[str],
    shadow: ShadowStorage,
) -> Replay:
    _count(traces, ran, choice)
    verdict = Verdict(reproduced=None)
    if choice.committed is not None and ran.failure is None:
        forms = StateForms.of(compiled.graph, compiled.ids)
        verdict = verify(shadow, forms, choice.parent, choice.committed, ran.reports)
    elif choice.committed is not None:
        verdict = Verdict(reproduced=False)
    raised = [(step, trace.raised) for step, trace in traces.items() if trace.raised is not None and _fails(compiled.graph, step)]
    replayed = Replay(
        job=info.name,
        storage=storage.uri,
        wanted=choice.wanted,
        epochs=[given.epoch for given in choice.inputs][: len(ran.reports)],
        parent=Epoch(choice.parent.epoch),
        processing_time=choice.inputs[-1].processing_time,
        parallelism=choice.parent.state.parallelism,
        steps={step: trace.result for step, trace in traces.items()},
        verdict=verdict,
        failure=ran.failure,
        failed=raised[0][1] if ran.failure is not None and raised else None,
        failed_step=raised[0][0] if ran.failure is not None and raised else None,
        notes=notes,
        backlog=None if following is None else following.backlog,
    )
    if following is not None and not following.news and not any(step.records_in for step in replayed.steps.values()):
        replayed.notes.append("there is nothing to read now")
    if options.record is not None and options.step is not None:
        tape = traces[StepId(options.step)].tape
        assert tape is not None
        about = {"job": info.name, "step": options.step, "program": choice.program, "main": _main_module()}
        grouped = choice.parent.state
        tape.write(options.record, {**about, "max_parallelism": grouped.max_parallelism, "key_hash": grouped.key_hash})
        replayed.recorded = options.record
    return replayed


def _fails(graph: Graph, step: StepId) -> bool:
    return graph.nodes[step].definition.errors == "fail"


def _count(traces: dict[StepId, StepTrace], ran: Ran, choice: Choice) -> None:
    """Counts of the epochs that were asked for."""
    shown = [
        report
        for given, reports in zip(choice.inputs, ran.reports, strict=False)
        if given.epoch in choice.shown
        for report in reports
    ]
    for step, metrics in metrics_of(shown).items():
        result = traces[StepId(step)].result
        result.records_in, result.records_out = metrics.records_in, metrics.records_out
        result.skipped = metrics.skipped + metrics.dead_letters
        result.counters = dict(metrics.counters)
    for trace in traces.values():
        trace.result.keys = len(trace.keys)
        if trace.attributed and not trace.result.records_in:  # its task failed, and reported no counts
            trace.result.records_in = trace.calls - trace.result.timers


def _main_module() -> str:
    """What the program's own module would be called if it were imported."""
    import sys

    file = getattr(sys.modules.get("__main__"), "__file__", None) or ""
    return os.path.splitext(os.path.basename(file))[0]
