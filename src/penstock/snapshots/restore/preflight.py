"""Could this program start from that snapshot? Looked up without running, or changing, anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.compile.compatibility import Judgement
from penstock.compile.renames import renamed_steps
from penstock.compile.source_claims import SourceClaims, shown
from penstock.jobs.manifest import Manifest
from penstock.plan.nodes import Graph
from penstock.snapshots.restore.reference import locate
from penstock.snapshots.restore.resolve import read_snapshot
from penstock.snapshots.restore.restore import examine_start
from penstock.storage import open_storage

if TYPE_CHECKING:
    from penstock.api.environment import StreamEnvironment

SourceVerdict = Literal["kept", "added", "removed"]


@dataclass(frozen=True, slots=True)
class SourceJudgement:
    """What becomes of a source."""

    step: str
    verdict: SourceVerdict
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What would become of everything that a snapshot holds. `problems`: why the start would be refused; none: it would not."""

    against: str
    epoch: int
    states: tuple[Judgement, ...]
    sources: tuple[SourceJudgement, ...]
    problems: tuple[str, ...]

    @property
    def refused(self) -> bool:
        return bool(self.problems)

    def data(self) -> dict[str, Any]:
        """As plain data, for `penstock check --json`."""
        return {
            "version": 1,
            "against": self.against,
            "epoch": self.epoch,
            "refused": self.refused,
            "problems": list(self.problems),
            "states": [
                {
                    "step": one.step,
                    "state": one.name,
                    "kind": one.kind,
                    "verdict": one.verdict,
                    "why": list(one.why),
                    "hint": one.hint,
                }
                for one in self.states
            ],
            "sources": [{"step": one.step, "verdict": one.verdict, "why": one.why} for one in self.sources],
        }

    def __str__(self) -> str:
        rows = [(one.step, one.name, str(one.verdict), "; ".join(one.why)) for one in self.states]
        rows += [(one.step, "", str(one.verdict), one.why) for one in self.sources]
        widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, [*widths, 0], strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, *(f"refused: {problem}" for problem in self.problems)])


def check(env: StreamEnvironment, against: str, **settings: Any) -> Preflight:
    """Compare a program with a savepoint's folder, a job's storage (its newest epoch), or `JOB@EPOCH`.

    `settings`: as for `execute`, for example `allow_dropped_state=True`.
    """
    located = locate(against)
    snapshot = read_snapshot(located)
    config = replace(env.config, **settings)
    own = not located.is_savepoint and (config.storage is None or open_storage(config.storage).uri == snapshot.home)
    judged = examine_start(env.graph, config, snapshot, foreign=not own)
    return Preflight(
        against=snapshot.source,
        epoch=snapshot.manifest.epoch,
        states=tuple(one for one in judged.states if not one.timers),
        sources=tuple(_sources(judged.graph, judged.sources, snapshot.manifest)),
        problems=tuple(f"{problem.what} ({problem.hint})" for problem in judged.problems),
    )


def _sources(graph: Graph, claims: SourceClaims, before: Manifest) -> Iterator[SourceJudgement]:
    former = {new: old for old, new in renamed_steps(graph, set(before.sources)).items()}
    for node in graph:
        if node.step in claims.kept:
            called = f" (it was called {former[node.step]!r})" if node.step in former else ""
            yield SourceJudgement(node.step, "kept", f"resumes from {shown(claims.kept[node.step])}{called}")
        elif node.step in claims.added:
            yield SourceJudgement(node.step, "added", "starts as configured")
    for step in claims.removed:
        yield SourceJudgement(step, "removed", f"its position was {shown(before.sources[step])}")
