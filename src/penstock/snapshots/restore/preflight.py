"""Could this program start from that snapshot? Looked up without running, or changing, anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from penstock.compile.compatibility import Judgement, check_rewritings_trusted, check_trusted, judge
from penstock.compile.renames import as_called_now, by_new_name, renamed_steps
from penstock.compile.rewrites import rewrite
from penstock.compile.source_claims import claim_sources, shown
from penstock.config import JobConfig
from penstock.errors import NotFoundError, StateError
from penstock.jobs import paths
from penstock.jobs.manifest import Manifest, load_manifest
from penstock.jobs.terms import find_head
from penstock.plan.nodes import Graph
from penstock.runtime.operators.source import SourceStep
from penstock.snapshots.restore.reference import parse_reference
from penstock.snapshots.restore.resolve import as_manifest
from penstock.snapshots.savepoint.format import read_info
from penstock.snapshots.savepoint.target_folder import SAVEPOINT
from penstock.storage import Storage, open_storage

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
    manifest, source, place = _found(against)
    config = replace(env.config, **settings)
    savepoint = place.exists(SAVEPOINT)
    own = not savepoint and (config.storage is None or open_storage(config.storage).uri == place.uri)
    return preflight(rewrite(env.graph), config, manifest, source, foreign=not own)


def preflight(graph: Graph, config: JobConfig, manifest: Manifest, source: str, *, foreign: bool) -> Preflight:
    """Pure."""
    judged = judge(graph, manifest.state)
    problems = [
        f"{one.step}.{one.name}: {'; '.join(one.why)} ({one.hint})"
        for one in judged
        if one.verdict == "incompatible" and (not one.timers or not _others_refused(judged, one))
    ]
    lost = [f"{one.step}.{one.name}" for one in judged if one.verdict == "dropped" and not one.timers]
    if lost and not config.allow_dropped_state:
        problems.append(f"no step claims {', '.join(lost)} (give the steps their former names, or use --allow-dropped-state)")
    if manifest.drained is not None:
        problems.append(f"the job was drained by epoch {manifest.epoch} (check against epoch {manifest.drained}, before it)")
    if config.max_parallelism not in (None, manifest.state.max_parallelism):
        problems.append(f"there are {manifest.state.max_parallelism} key groups, max_parallelism is {config.max_parallelism}")
    elif config.parallelism > manifest.state.max_parallelism:
        problems.append(f"parallelism is {config.parallelism}, and there are {manifest.state.max_parallelism} key groups")
    claimed = {(one.step, one.name): one.number for one in judged if one.info is not None and one.number is not None}
    rewritings = [one.rewriting for one in judged if one.rewriting is not None]
    sources = as_called_now(manifest, graph).sources
    try:
        if foreign:
            check_trusted(graph, manifest.state, claimed, trust=config.trust, source=source)
        check_rewritings_trusted(rewritings, trust=config.trust, source=source)
        claim_sources(graph, sources, allow_dropped=config.allow_dropped_state)
    except StateError as error:
        problems.append(f"{error.what} ({error.hint})")
    return Preflight(
        against=source,
        epoch=manifest.epoch,
        states=tuple(one for one in judged if not one.timers),
        sources=tuple(_sources(graph, manifest)),
        problems=tuple(problems),
    )


def _others_refused(judged: list[Judgement], one: Judgement) -> bool:
    """Timers share their step's keys: what is wrong with these is said once."""
    return any(other.step == one.step and other.verdict == "incompatible" and not other.timers for other in judged)


def _sources(graph: Graph, manifest: Manifest) -> list[SourceJudgement]:
    former = {new: old for old, new in renamed_steps(graph, set(manifest.sources)).items()}
    kept = by_new_name(manifest.sources, {old: new for new, old in former.items()})
    found: list[SourceJudgement] = []
    for node in graph:
        if isinstance(node.definition, SourceStep):
            if node.step in kept:
                called = f" (it was called {former[node.step]!r})" if node.step in former else ""
                found.append(SourceJudgement(node.step, "kept", f"resumes from {shown(kept[node.step])}{called}"))
            else:
                found.append(SourceJudgement(node.step, "added", "starts as configured"))
    for step, state in kept.items():
        if step not in graph.nodes:
            found.append(SourceJudgement(step, "removed", f"its position was {shown(state)}"))
    return found


def _found(against: str) -> tuple[Manifest, str, Storage]:
    reference = parse_reference(against)
    place = open_storage(reference.place or against)
    if reference.kind != "epoch" and place.exists(SAVEPOINT):
        return as_manifest(read_info(place)), place.uri, place
    if not place.exists(paths.JOB):
        raise NotFoundError(
            f"{place.uri} holds neither a savepoint nor a job",
            hint="give a savepoint's folder, a job's storage, or JOB@EPOCH",
        )
    manifest = find_head(place).manifest if reference.epoch is None else load_manifest(place, reference.epoch)
    if manifest is None:
        raise NotFoundError(
            f"the job in {place.uri} has no epoch yet", hint="there is nothing to compare with: any program can start"
        )
    return manifest, f"{place.uri}@{manifest.epoch}", place
