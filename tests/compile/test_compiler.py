"""One way from a program to what runs."""

from __future__ import annotations

import ast
from pathlib import Path

import pyarrow as pa

import penstock
from penstock import FileSource, GeneratorSource, StreamEnvironment, TumblingWindows, Watermarks, avg
from penstock.compile.compiler import Target, claim, compile_program
from penstock.compile.explain import explain_data, explain_text
from penstock.ids import JobId, Term
from penstock.state.key_groups import NEW_JOBS, KeyGroups
from penstock.storage import LocalStorage

SRC = Path(penstock.__file__).parent


def means() -> StreamEnvironment:
    env = StreamEnvironment("means", executor="inline", parallelism=2)
    readings = env.from_source(
        GeneratorSource(lambda n: {"room": "kitchen", "time": n, "celsius": n}, count=10),
        watermarks=Watermarks.monotonous(timestamp="time"),
        name="readings",
    )
    readings.key_by("room").window(TumblingWindows(minutes=1)).aggregate(avg("celsius"), name="mean").print()
    return env


def target(folder: Path) -> Target:
    return Target(
        name="means",
        job=JobId("job"),
        storage=LocalStorage(folder),
        parallelism=2,
        key_groups=KeyGroups(128, NEW_JOBS),
        term=Term(1),
    )


def calls_of(name: str) -> set[str]:
    """The modules that call a function or class of this name."""
    found = set()
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                found.add(str(path.relative_to(SRC)))
    return found


def test_nothing_else_makes_a_job_or_rewrites_a_program() -> None:
    assert calls_of("CompiledJob") == {"compile/compiler.py"}
    assert calls_of("lay_out") == {"compile/compiler.py"}
    for rule in ("rewrite", "judge", "refusals", "brings_code", "claim_states", "claim_sources"):
        assert calls_of(rule) == {"compile/compiler.py"}, rule
    assert calls_of("columnar_windows") == set(), "it is one of the rewrites"


def test_explain_shows_the_plan_that_runs(tmp_path: Path) -> None:
    env = means()
    compiled = compile_program(env.graph, None, {}, target(tmp_path), allow_dropped=False)
    shown = explain_data(env.graph, env.config)
    assert [step["id"] for step in shown["steps"]] == [node.step for node in compiled.graph]
    assert "mean/partial" in compiled.graph.nodes
    assert [stage["steps"] for stage in shown["stages"]] == [[step.step for step in stage.steps] for stage in compiled.job.stages]


def test_a_program_compiled_on_its_own_state_is_laid_out_as_it_was(tmp_path: Path) -> None:
    env = means()
    first = compile_program(env.graph, None, {}, target(tmp_path), allow_dropped=False)
    again = compile_program(env.graph, first.layout, {}, target(tmp_path), allow_dropped=False)
    assert again.layout == first.layout
    assert again.job.state_ids == first.job.state_ids
    assert again.job.fingerprint == first.job.fingerprint


def test_the_users_graph_is_left_alone() -> None:
    env = means()
    before = dict(env.graph.nodes)
    claimed = claim(env.graph, None, {}, allow_dropped=False)
    assert env.graph.nodes == before
    assert claimed.graph.nodes != before


def test_pruned_columns_are_shown(tmp_path: Path) -> None:
    def total(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    env = StreamEnvironment("pruned", executor="inline", parallelism=1)
    env.from_source(FileSource(str(tmp_path), format="parquet"), name="orders").map_batches(total, columns=["price", "n"]).print()
    assert "reads only n, price" in explain_text(env.graph, env.config)
