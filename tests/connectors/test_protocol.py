"""What the engine asks of connectors is declared, asked for by `isinstance`, and offered by somebody."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import CollectionSource, CollectSink, StreamEnvironment
from penstock.connectors import protocol
from penstock.connectors.protocol import Committer, CommitterContext, Enumerator, Planned, Reader, Sink, Source, SourceContext
from penstock.errors import PlanError
from penstock.ids import Epoch, JobId, StepId
from penstock.records import DICT_ROW
from penstock.storage import LocalStorage

SRC = Path(penstock.__file__).parent
ASKED = ("api", "compile", "epochs", "runtime", "snapshots", "running")
OPTIONAL = {
    name
    for name in protocol.__all__
    if getattr(getattr(protocol, name), "_is_runtime_protocol", False) and name not in ("Source", "Sink", "CallsFunctions")
}


@cache
def calls() -> list[ast.Call]:
    """All calls in what asks connectors."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for folder in ASKED for path in (SRC / folder).rglob("*.py")]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]


def calls_of(name: str) -> Iterator[ast.Call]:
    return (call for call in calls() if isinstance(call.func, ast.Name) and call.func.id == name)


def test_every_optional_protocol_is_asked_for() -> None:
    asked = {name.id for call in calls_of("isinstance") for name in ast.walk(call.args[1]) if isinstance(name, ast.Name)}
    assert len(OPTIONAL) > 12
    assert asked >= OPTIONAL


def test_nothing_undeclared_is_asked_of_a_connector() -> None:
    for call in (*calls_of("getattr"), *calls_of("hasattr")):
        assert not {"source", "sink", "enumerator", "reader", "committer", "writer"} & set(ast.unparse(call.args[0]).split("."))


@pytest.mark.parametrize("what", [None, 3, CollectionSource, CollectSink()])
def test_what_is_not_a_source_is_refused(what: Any) -> None:
    with pytest.raises(PlanError, match="is not a source"):
        StreamEnvironment(executor="inline").from_source(what)


@pytest.mark.parametrize("what", [None, "out/", CollectSink, CollectionSource([1])])
def test_what_is_not_a_sink_is_refused(what: Any) -> None:
    with pytest.raises(PlanError, match="is not a sink"):
        StreamEnvironment(executor="inline").from_collection([1]).sink_to(what)


def test_what_does_nothing_need_not_be_written() -> None:
    class Nothing(Enumerator):
        def plan(self, position: Any, limits: Any, now_ms: int) -> Planned:
            return Planned(exhausted=True)

    class Unread(Reader):
        def read(self, split: Any) -> Iterator[Any]:
            return iter(())

    class Lost(Committer):
        def commit(self, epoch: Epoch, committables: Any) -> None:
            raise AssertionError

    @dataclass(frozen=True)
    class Empty(Source):
        bounded = True

        def enumerator(self, context: SourceContext) -> Enumerator:
            return Nothing()

        def reader(self) -> Reader:
            return Unread()

        def describe(self) -> str:
            return "nothing"

    @dataclass(frozen=True)
    class Void(Sink):
        def writer(self, context: Any) -> Any:
            raise AssertionError

        def committer(self, context: Any) -> Committer:
            return Lost()

        def describe(self) -> str:
            return "the void"

    assert Empty().row is DICT_ROW
    assert not Void().volatile
    env = StreamEnvironment("nothing", executor="inline", parallelism=1)
    env.from_source(Empty()).sink_to(Void())
    assert env.execute().epochs == 1
    Lost().abort(Epoch(1), [])


def test_a_step_has_a_folder_of_its_own_whatever_its_name(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    source = SourceContext(job=JobId("j"), step=StepId("../a b/c.d"), storage=storage, parallelism=1)
    sink = CommitterContext(job=JobId("j"), step=StepId("../a b/c.d"), storage=storage)
    assert (source.folder, sink.folder) == ("feeds/%2E%2E%2Fa%20b%2Fc%2Ed", "sinks/%2E%2E%2Fa%20b%2Fc%2Ed")
    storage.create(f"{sink.folder}/x", b"")
    assert [listed.path for listed in storage.list()] == [f"{sink.folder}/x"]
