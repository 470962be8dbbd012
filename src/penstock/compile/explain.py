"""The plan that runs: steps, stages, exchanges and state, as data and as text, after all rewrites. Golden-tested."""

from __future__ import annotations

import re
from typing import Any

from penstock.cep.step import KeyedPatterns
from penstock.changes import APPENDS, KINDS
from penstock.compile.compiler import claim
from penstock.compile.order import OrderNotes, summary_of
from penstock.compile.stages import cut
from penstock.config import JobConfig
from penstock.connectors.protocol import PrunesColumns
from penstock.functions import function_location, users_function
from penstock.joins.spec import DescribesItself
from penstock.plan.definition import StateDeclaration
from penstock.plan.exchange import Exchange
from penstock.plan.nodes import Graph, Node
from penstock.runtime.awaited.async_map import AsyncMap
from penstock.runtime.awaited.lookup_join import LookupJoin
from penstock.runtime.exchange import Channel
from penstock.runtime.job import LoopPlan
from penstock.runtime.operators.expressions import Filter, Project
from penstock.runtime.operators.loop import LoopTail
from penstock.runtime.operators.sink import SinkStep
from penstock.runtime.operators.source import SourceStep
from penstock.state.descriptors import sub_keys_of
from penstock.state.encoding.schemas import schema_text
from penstock.state.entries.kinds import is_internal
from penstock.state.key_groups import NEW_JOBS, KeyGroups, default_max_parallelism
from penstock.state.overlay.handles import state_codec
from penstock.windows.columnar.eligible import why_not_columnar
from penstock.windows.columnar.merge import MergeStep
from penstock.windows.step import WindowStep

VERSION = 1


def explain_data(graph: Graph, config: JobConfig) -> dict[str, Any]:
    """The program as plain data, for `penstock explain --json`."""
    claimed = claim(graph, None, {}, allow_dropped=False)
    runs = claimed.graph
    most = config.max_parallelism or default_max_parallelism(config.parallelism)
    plan = cut(runs, claimed.states.ids, config.parallelism, KeyGroups(most, NEW_JOBS))
    stage_of = {step.step: stage.index for stage in plan.stages for step in stage.steps}
    over_columns = _over_columns(graph, runs)
    turns = {loop.tail: _turns(loop) for loop in plan.loops}
    order = summary_of(runs, config.guarantee)
    return {
        "version": VERSION,
        "job": config.name,
        "executor": config.executor,
        "guarantee": config.guarantee,
        "parallelism": config.parallelism,
        "max_parallelism": most,
        "bounded": is_bounded(graph),
        "steps": [
            {**_step(node, stage_of[node.step], order), **over_columns.get(node.step, {}), **turns.get(node.step, {})}
            for node in runs
        ],
        "stages": [{"stage": stage.index, "steps": [step.step for step in stage.steps]} for stage in plan.stages if stage.steps],
        "exchanges": [_exchange(channel) for stage in plan.stages for channel in stage.channels_out],
        "warnings": [_unnamed(node) for node in graph if keeps_state(node) and not node.named],
    }


def explain_text(graph: Graph, config: JobConfig) -> str:
    """The program as text, for people."""
    data = explain_data(graph, config)
    steps = {step["id"]: step for step in data["steps"]}
    extent = "bounded: it ends with its input" if data["bounded"] else "unbounded: it runs until it is stopped"
    lines = [
        f"job {data['job']}: {data['guarantee']}, parallelism {data['parallelism']} of at most {data['max_parallelism']}",
        extent,
    ]
    for stage in data["stages"]:
        arriving = [exchange for exchange in data["exchanges"] if exchange["to_stage"] == stage["stage"]]
        lines += ["", *(_arrow(exchange) for exchange in arriving)]
        lines.append(f"stage {stage['stage']}")
        for step in stage["steps"]:
            lines += [f"  {line}" if line else "" for line in _step_lines(steps[step])]
    if data["warnings"]:
        lines += ["", *(f"warning: {warning}" for warning in data["warnings"])]
    return "\n".join(lines) + "\n"


def is_bounded(graph: Graph) -> bool:
    """Does the input of every source end?"""
    return all(node.definition.source.bounded for node in graph if isinstance(node.definition, SourceStep))


def keeps_state(node: Node) -> bool:
    return any(declaration.state is not None or is_internal(declaration.kind) for declaration in node.states())


# --- data ------------------------------------------------------------------------------------------------------------------


def _step(node: Node, stage: int, order: OrderNotes) -> dict[str, Any]:
    definition = node.definition
    step: dict[str, Any] = {
        "id": node.step,
        "named": node.named,
        "stage": stage,
        "kind": definition.kind,
        "function": user_function(definition.function()),
        "errors": definition.errors,
        "inputs": [
            {"step": i.step, "tag": i.tag, "exchange": None if i.exchange is None else i.exchange.describe()} for i in node.inputs
        ],
        "states": [_state(declaration) for declaration in node.states() if declaration.state is not None],
        "timers": any(is_internal(declaration.kind) for declaration in node.states()),
    }
    if isinstance(definition, SourceStep):
        columns = definition.source.columns if isinstance(definition.source, PrunesColumns) else None
        step["source"] = {
            "what": definition.source.describe(),
            "bounded": definition.source.bounded,
            "watermarks": None if definition.watermarks is None else definition.watermarks.describe(),
            "columns": None if columns is None else list(columns),
            "read": order.sources.get(node.step),
        }
    if node.step in order.steps:
        step["order"] = order.steps[node.step]
    if node.emits != APPENDS:
        step["changes"] = [str(kind) for kind in KINDS if kind in node.emits]
    if isinstance(definition, LoopTail):
        step["feedback"] = definition.loop
    if isinstance(definition, Filter | Project):
        step["expressions"] = definition.describe()
    if isinstance(definition, AsyncMap | LookupJoin):
        step["calls"] = definition.describe()
    if isinstance(definition, KeyedPatterns):
        step["pattern"] = definition.describe()
    if isinstance(definition, WindowStep):
        step["window"] = {**definition.describe(), "path": f"record by record, not over columns: {why_not_columnar(definition)}"}
    if isinstance(definition, DescribesItself):
        step["join"] = definition.describe()
    if isinstance(definition, SinkStep):
        step["sink"] = {"what": definition.sink.describe(), "volatile": definition.sink.volatile}
    return step


def _over_columns(graph: Graph, runs: Graph) -> dict[str, dict[str, Any]]:
    """What there is to say of window steps that are computed over columns, by step."""
    partials = {node.step: node.inputs[0].step for node in runs if isinstance(node.definition, MergeStep)}
    found: dict[str, dict[str, Any]] = {}
    for step, partial in partials.items():
        window = graph.nodes[step].definition
        assert isinstance(window, WindowStep)
        slices = getattr(runs.nodes[partial].definition, "slices", None)
        by = "" if slices is None else f" and slices of {slices.slice_ms} ms"
        others = [other for other, one in partials.items() if one == partial and other != step]
        shared = f", together with {', '.join(others)}" if others else ""
        how = {
            "contents": "a row for each key" + ("" if slices is None else " and slice of time") + ", in chunks by key group",
            "path": f"over columns: aggregated before the exchange, by key{by}{shared}",
        }
        found[step] = {"window": {**window.describe(), **how}, "states": [], "timers": False}
    return found


def _turns(loop: LoopPlan) -> dict[str, Any]:
    """What there is to say of the end of a loop: where its records turn within an epoch."""
    if loop.within:
        turns = "within the task, without an exchange"
    elif loop.ways is not None:
        others = "in the next lap" if loop.laps else "in the next epoch"
        turns = f"within the task where the key stays in its partition, otherwise {others}"
    else:
        turns = "in the next epoch"
    return {"turns": turns}


def user_function(function: Any) -> str | None:
    """`name (file:line)`. Of a function of Penstock's own (reduce, fold, split, …): the one the user gave it, if any."""
    return None if users_function(function) is None else function_location(function)


def _state(declaration: StateDeclaration) -> dict[str, Any]:
    state = declaration.state
    assert state is not None
    ttl, sub_keys = state.ttl, sub_keys_of(state)
    return {
        "name": declaration.name,
        "kind": declaration.kind,
        "scope": declaration.scope,
        "schema": state_codec(state).schema,
        "map_key": None if sub_keys is None or sub_keys.key_type is None else sub_keys.schema,
        "ttl": None if ttl is None else {"ms": ttl.ms, "time": ttl.time, "refresh": ttl.refresh},
    }


def _exchange(channel: Channel) -> dict[str, Any]:
    exchange = channel.exchange
    return {
        "how": exchange.describe(),
        "key": _key_form(exchange),
        "from_stage": channel.from_stage,
        "to_stage": channel.from_stage + 1,
        "from": channel.step,
        "tag": channel.tag,
        "to": [step for step, _ in channel.ends],
        "relayed": channel.relay_of is not None,
    }


def _key_form(exchange: Exchange) -> str | None:
    """Columns stay columns through the exchange; a function needs the records."""
    if exchange.kind != "key_by":
        return None
    return "function" if callable(exchange.selector) else "columns"


def _unnamed(node: Node) -> str:
    return (
        f"step {node.step!r} keeps state under a derived id: its state is lost when the program changes. "
        f'Give it a name, for example name="{re.sub(r"-[0-9]+$", "", node.step)}".'
    )


# --- text ------------------------------------------------------------------------------------------------------------------


def _arrow(exchange: dict[str, Any]) -> str:
    start = exchange["from"] + (f" [{exchange['tag']}]" if exchange["tag"] else "")
    key = ", columnar" if exchange["key"] == "columns" else ""
    end = ", ".join(exchange["to"]) or "a later stage"
    return f"  │ {exchange['how']}{key}: {start} → {end}" + (", relayed" if exchange["relayed"] else "")


def _step_lines(step: dict[str, Any]) -> list[str]:
    lines = [f"{step['id']}: {step['kind']}" + ("" if step["named"] else "   (derived id)")]
    within = [i["step"] + (f" [{i['tag']}]" if i["tag"] else "") for i in step["inputs"] if i["exchange"] is None]
    if within:
        lines.append(f"  from {', '.join(within)}")
    if step["function"] is not None:
        lines.append(f"  function {step['function']}")
    if "source" in step:
        lines.append(f"  {'bounded' if step['source']['bounded'] else 'unbounded'}")
        lines.append(f"  watermarks {step['source']['watermarks'] or 'none'}")
        if step["source"]["columns"] is not None:
            lines.append(f"  reads only {', '.join(step['source']['columns']) or 'no column'}")
        lines += [f"  read {step['source']['read']}"] if step["source"]["read"] else []
    if "order" in step:
        lines.append(f"  sees order: {step['order']}")
    lines += [f"  updates: emits {', '.join(step['changes'])}"] if "changes" in step else []
    lines += [f"  {what} {how}" for what, how in step.get("expressions", {}).items()]
    lines += [f"  {what} {how}" for what, how in step.get("calls", {}).items()]
    lines += [f"  {what} {how}" for what, how in step.get("window", {}).items()]
    if "feedback" in step:
        lines.append(f"  ↺ what comes here goes back to {step['feedback']}: {step['turns']}")
    lines += [f"  {what}: {how}" for what, how in step.get("pattern", {}).items()]
    lines += [f"  {what} {how}" for what, how in step.get("join", {}).items()]
    if step["errors"] != "fail":
        lines.append(f"  errors {step['errors']}")
    if "sink" in step and step["sink"]["volatile"]:
        lines.append("  volatile: shown once, kept nowhere")
    lines += [f"  state {_state_line(state)}" for state in step["states"]]
    if step["timers"] and not step["states"]:
        lines.append("  state: timers only")
    return lines


def _state_line(state: dict[str, Any]) -> str:
    key = f"{schema_text(state['map_key'])} → " if state["map_key"] is not None else ""
    whose = "" if state["scope"] == "keyed" else f"{state['scope']} "
    line = f"{state['name']}: {whose}{state['kind']} of {key}{schema_text(state['schema'])}"
    if state["ttl"] is not None:
        line += f", ttl {state['ttl']['ms']} ms of {state['ttl']['time']} time since the last {state['ttl']['refresh']}"
    return line
